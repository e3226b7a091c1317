#!/bin/bash
# Trains the two recipes that networks of this package are known by, on one GPU, all runs side by
# side after a measurement of the MNIST epoch that has the GPU to itself.
#
#   DATA=folder OUT=folder bash benchmarks/learning.sh
#
# DATA holds the four IDX files of MNIST and cifar10-jpeg.tar.gz. EPOCHS_MNIST, EPOCHS_CIFAR, SEEDS
# and LOWERINGS (of the MNIST runs) can be set.
set -u
out=${OUT:-/tmp}
python=${PYTHON:-python3}
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
export XLA_PYTHON_CLIENT_PREALLOCATE=false RENAISSANCE_CACHE=/tmp/rn_cache
if [ -z "${RENAISSANCE_NATIVE_LIBRARY:-}" ]; then
  $python -m pip install -q --no-deps --no-build-isolation --no-index --upgrade --target /tmp/rn_site . 2>&1 |
    tail -3
  export RENAISSANCE_NATIVE_LIBRARY=/tmp/rn_site/renaissance/runtime/librenaissance_native.so
fi
echo "ready after $SECONDS s"
timeout 100 $python benchmarks/mnist_epoch.py --data "$DATA" 2>&1 | tee "$out/mnist_epoch.log" |
  grep -v -i warning
echo "measured after $SECONDS s"
train="$python -m renaissance train"
common="--pipeline ${PIPELINE:-device} --no-files --amp --info"
timeout 270 $train resnet18 --data "$DATA/cifar10-jpeg.tar.gz" --lowering xla --augment \
  --epochs ${EPOCHS_CIFAR:-30} --batch ${BATCH_CIFAR:-256} --optimizer nesterov \
  --weight-decay 5e-4 --smoothing 0.1 --lr 0.1 --scheduler cosine --warmup ${WARMUP:-5} --seed 1 \
  $common >"$out/resnet18.log" 2>&1 &
for lowering in ${LOWERINGS:-xla fused}; do
  for seed in ${SEEDS:-123 1 2}; do
    timeout 200 $train mlp --data "$DATA" --format mnist --augment --epochs ${EPOCHS_MNIST:-100} \
      --batch 200 --optimizer adamw --weight-decay 1e-4 --smoothing 0.1 --lr 1e-3 \
      --scheduler cosine --warmup ${WARMUP:-5} --lowering $lowering --seed $seed \
      $common >"$out/mlp-$lowering-$seed.log" 2>&1 &
  done
done
wait
echo "trained after $SECONDS s"
for log in "$out"/resnet18.log "$out"/mlp-*.log; do
  echo "== $(basename "$log")"
  grep -v -i warning "$log" | tail -5 | cut -c1-200
done
