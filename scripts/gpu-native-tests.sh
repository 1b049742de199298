#!/usr/bin/env bash
# Runs the native tests on GPUs, then the small ones under compute-sanitizer.
#
#   scripts/gpu-native-tests.sh build   compiles it
#   scripts/gpu-native-tests.sh run     runs it (the default; builds it first where it is missing)
#
# WARPJOIN_TEST_FILTER (default *Gpu*), WARPJOIN_EXPECT_GPUS (fails if there are fewer: skipped tests must not look like
# passed ones), and those of scripts/gpu-build.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
tests=build/gpu/warpjoin_tests

build() { bash scripts/gpu-build.sh warpjoin_tests; }

run() {
  [ -x "$tests" ] || build
  gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
  echo "GPUs: $gpus"
  if [ "$gpus" -lt "${WARPJOIN_EXPECT_GPUS:-1}" ]; then
    echo "expected ${WARPJOIN_EXPECT_GPUS:-1} GPUs" >&2
    exit 1
  fi
  "$tests" --gtest_filter="${WARPJOIN_TEST_FILTER:-*Gpu*}" --gtest_brief=1

  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
  if [ -z "$sanitizer" ]; then
    echo "compute-sanitizer is not installed: its checks were not run" >&2
    exit 1
  fi
  for tool in memcheck racecheck initcheck synccheck; do
    echo "== $tool"
    "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 20 \
      "$tests" --gtest_filter='*Gpu*ForTheSanitizers*' --gtest_brief=1
  done
}

case "${1:-run}" in
  build) build ;;
  run) run ;;
  *) echo "usage: $0 [build|run]" >&2; exit 2 ;;
esac
