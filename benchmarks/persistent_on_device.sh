#!/bin/bash
# The persistent MLP kernel inside the product, on a machine with an H200: tests, times, memory check.
#
#   OUT=folder bash benchmarks/persistent_on_device.sh [tests] [bench] [sanitize] [compare]
set -u
out=${OUT:-/tmp}
export PYTHONPATH=$PWD
export XLA_PYTHON_CLIENT_PREALLOCATE=false PYTHONUNBUFFERED=1 RENAISSANCE_CACHE=/tmp/rn_cache
python=${PYTHON:-python3}
began=$SECONDS
$python -m pip install -q --no-deps --no-build-isolation --no-index --upgrade --target /tmp/rn_site . 2>&1 | tail -3
export RENAISSANCE_NATIVE_LIBRARY=/tmp/rn_site/renaissance/runtime/librenaissance_native.so
echo "installed after $((SECONDS - began)) s"
options="-q -p no:cacheprovider -o addopts= -o filterwarnings=default"
case " $* " in *" tests "*)
  timeout 100 $python -m pytest $options -n 6 tests/program/test_persistent_device.py \
    tests/program/test_many_steps.py >"$out/persistent_tests.log" 2>&1
  echo "tests ended with $? after $((SECONDS - began)) s"
  grep -E "^(FAILED|ERROR|E  )|passed|failed" "$out/persistent_tests.log" | cut -c1-200 | tail -40 ;;
esac
case " $* " in *" bench "*)
  (cd benchmarks && timeout 100 $python many_steps.py) 2>&1 | tee "$out/many_steps.txt" | tail -20
  echo "benchmark ended after $((SECONDS - began)) s" ;;
esac
case " $* " in *" sanitize "*)
  timeout 60 compute-sanitizer --tool memcheck --error-exitcode 9 $python -m pytest $options \
    tests/program/test_persistent_device.py -k "same_bits and adam and not adamw" >"$out/memcheck.log" 2>&1
  echo "memcheck ended with $? after $((SECONDS - began)) s"
  grep -E "ERROR SUMMARY|=========|passed|failed" "$out/memcheck.log" | tail -8 ;;
esac
case " $* " in *" compare "*)
  timeout 80 $python -m renaissance compare mlp --batch 200 --optimizer adamw \
    --against xla-loop,fused-loop 2>&1 | tee "$out/compare.txt" | grep -v -i warning | tail -25
  echo "comparison ended after $((SECONDS - began)) s" ;;
esac
