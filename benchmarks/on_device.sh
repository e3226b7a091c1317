#!/bin/bash
# Builds the native library on a machine with a CUDA device, runs the native tests there, measures.
#
#   OUT=folder bash benchmarks/on_device.sh [tests] [bench] [tiles] [hash] [sanitize]
#                                            [persistent] [persistent-memcheck]
set -u
out=${OUT:-/tmp}
export PYTHONPATH=$PWD
export XLA_PYTHON_CLIENT_PREALLOCATE=false PYTHONUNBUFFERED=1 RENAISSANCE_CACHE=/tmp/rn_cache
python=${PYTHON:-python3}
began=$SECONDS
$python -m pip install -q --no-deps --no-build-isolation --no-index --upgrade --target /tmp/rn_site . 2>&1 | tail -3
export RENAISSANCE_NATIVE_LIBRARY=/tmp/rn_site/renaissance/runtime/librenaissance_native.so
echo "installed after $((SECONDS - began)) s: $(ls -la $RENAISSANCE_NATIVE_LIBRARY)"
options="-q -p no:cacheprovider -o addopts= -o filterwarnings=default"
case " $* " in *" tests "*)
  timeout 150 $python -m pytest $options -n 8 tests/lowering/calls/test_native.py \
    tests/lowering/calls/test_native_update.py tests/lowering/fused/test_passes.py \
    tests/runtime/test_library.py >"$out/tests.log" 2>&1
  echo "tests ended with $? after $((SECONDS - began)) s"
  grep -E "^(FAILED|ERROR|E  )|passed|failed" "$out/tests.log" | cut -c1-220 | tail -40 ;;
esac
case " $* " in *" bench "*)
  tiles=""; case " $* " in *" tiles "*) tiles="--tiles";; esac
  timeout 200 $python benchmarks/fused_mlp.py $tiles --json "$out/fused_mlp.json" 2>&1 |
    tee "$out/bench.log" | grep -v -i warning | tail -90
  echo "benchmark ended after $((SECONDS - began)) s" ;;
esac
case " $* " in *" hash "*)
  for process in 1 2 3 4 5; do
    timeout 90 $python benchmarks/hash_of_steps.py >"$out/hash$process.txt" 2>>"$out/hash.log" &
  done
  wait
  echo "hashes after 200 steps in five processes, after $((SECONDS - began)) s:"
  sort "$out"/hash?.txt | uniq -c; rm "$out"/hash?.txt ;;
esac
case " $* " in *" sanitize "*)
  for tool in memcheck racecheck initcheck synccheck; do
    filter="--kernel-name kernel_substring=_kernel" allocator=default
    # in XLA's pool an access past a buffer's end is inside the pool
    [ $tool = memcheck ] && allocator=platform
    # what other kernels write would count as never written
    [ $tool = initcheck ] && filter=""
    XLA_PYTHON_CLIENT_ALLOCATOR=$allocator timeout 120 compute-sanitizer --tool $tool $filter \
      --error-exitcode 9 $python benchmarks/some_tests.py 45 $options \
      -k "not dense and not with_the_statistics" tests/lowering/calls/test_native.py \
      tests/lowering/calls/test_native_{update,norm,pool,conv}.py >"$out/$tool.log" 2>&1 &
  done
  wait
  for tool in memcheck racecheck initcheck synccheck; do
    echo "$tool: $(grep -E "ERROR SUMMARY|RACECHECK SUMMARY|passed|failed" "$out/$tool.log" | tr '\n' ' ')"
  done
  echo "sanitizers ended after $((SECONDS - began)) s" ;;
esac
case " $* " in *" persistent "*)
  timeout 100 $python -m pytest $options -n 6 tests/program/test_persistent_device.py \
    tests/program/test_many_steps.py >"$out/persistent_tests.log" 2>&1
  echo "persistent kernel's tests ended with $? after $((SECONDS - began)) s"
  grep -E "^(FAILED|ERROR|E  )|passed|failed" "$out/persistent_tests.log" | cut -c1-200 | tail -40
  (cd benchmarks && timeout 100 $python many_steps.py) 2>&1 | tee "$out/many_steps.txt" | tail -20
  echo "many steps timed after $((SECONDS - began)) s" ;;
esac
case " $* " in *" persistent-memcheck "*)
  timeout 60 compute-sanitizer --tool memcheck --error-exitcode 9 $python -m pytest $options \
    tests/program/test_persistent_device.py -k "same_bits and (adam and not adamw or deep)" \
    >"$out/persistent_memcheck.log" 2>&1
  echo "persistent kernel's memcheck ended with $? after $((SECONDS - began)) s"
  grep -E "ERROR SUMMARY|passed|failed" "$out/persistent_memcheck.log" | tail -8 ;;
esac
