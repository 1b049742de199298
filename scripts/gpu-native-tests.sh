#!/usr/bin/env bash
# Runs the native tests on GPUs, then the small ones under compute-sanitizer.
#
#   scripts/gpu-native-tests.sh build        compiles them
#   scripts/gpu-native-tests.sh together     runs those that others may run beside (builds them first where they are missing)
#   scripts/gpu-native-tests.sh alone        runs the others
#   scripts/gpu-native-tests.sh tests        both
#   scripts/gpu-native-tests.sh sanitizers [TOOL...]   runs the small ones under these of compute-sanitizer's tools (all)
#   scripts/gpu-native-tests.sh              tests, then sanitizers
#
# WARPJOIN_TEST_SHARDS (default 1): processes side by side, each with the GPUs in an order of its own, for most tests use the
# first one. WARPJOIN_EXPECT_GPUS (fails if there are fewer: skipped tests must not look like passed ones), and those of
# scripts/gpu-build.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
tests=build/gpu/warpjoin_tests
shards=${WARPJOIN_TEST_SHARDS:-1}
# They fill a GPU, or look at what is free of it or at how fast its links are: nothing runs beside them.
alone='*Gpu*Failure*:*GpuLarge*:*Gpu*ReleasesEverything*:*GpuLinkSpeeds*'

build() { bash scripts/gpu-build.sh warpjoin_tests; }

find_gpus() {
  local all
  all=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
  IFS=, read -ra gpus <<<"${CUDA_VISIBLE_DEVICES-$(seq -s, 0 $((all - 1)))}"
  echo "GPUs: ${#gpus[@]}"
  if [ "${#gpus[@]}" -lt "${WARPJOIN_EXPECT_GPUS:-1}" ]; then
    echo "expected ${WARPJOIN_EXPECT_GPUS:-1} GPUs" >&2
    exit 1
  fi
}

# sharded FILTER [COMMAND...]: the tests in shards side by side, under a command; then prints what each of them said.
sharded() {
  local filter=$1 logs i failed=0 running=()
  shift
  logs=$(mktemp -d)
  for ((i = 0; i < shards; ++i)); do
    local first=$((i * ${#gpus[@]} / shards))
    local turned=("${gpus[@]:first}" "${gpus[@]:0:first}")
    CUDA_VISIBLE_DEVICES=$(IFS=, && echo "${turned[*]}") GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i \
      "$@" "$tests" --gtest_filter="$filter" --gtest_brief=1 >"$logs/$i" 2>&1 &
    running+=($!)
  done
  for i in "${!running[@]}"; do
    wait "${running[i]}" || failed=1
    cat "$logs/$i"
  done
  rm -r "$logs"
  return $failed
}

run_together() { sharded "*Gpu*-$alone"; }
run_alone() { "$tests" --gtest_filter="$alone" --gtest_brief=1; }
run_tests() {
  run_together
  run_alone
}

run_sanitizers() {
  local sanitizer tool tools=("$@")
  [ $# -gt 0 ] || tools=(memcheck racecheck initcheck synccheck)
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
  if [ -z "$sanitizer" ]; then
    echo "compute-sanitizer is not installed: its checks were not run" >&2
    exit 1
  fi
  for tool in "${tools[@]}"; do
    echo "== $tool"
    sharded '*Gpu*ForTheSanitizers*' "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 20
  done
}

[ "${1:-}" = build ] || { [ -x "$tests" ] || build; find_gpus; }
case "${1:-all}" in
  build) build ;;
  together | alone | tests) "run_$1" ;;
  sanitizers) run_sanitizers "${@:2}" ;;
  all) run_tests; run_sanitizers ;;
  *) echo "usage: $0 [build | together | alone | tests | sanitizers [TOOL...]]" >&2; exit 2 ;;
esac
