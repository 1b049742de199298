#!/usr/bin/env bash
# Measures GPUs against the ceilings of their memory and links.
#
#   scripts/gpu-bench.sh build             compiles the programs to build/gpu
#   scripts/gpu-bench.sh primitives [...]  partitions, hash groups, sorts, gathers, match ranges and concatenations: --json FILE, --tuples N
#   scripts/gpu-bench.sh sort [...]        sorts from host to host and resident: --json FILE, --keys N, --pairs N, ...
#   scripts/gpu-bench.sh gather [...]      columns by row number, beside the host's threads: --json FILE, --rows N, --runs N
#   scripts/gpu-bench.sh join [...]        hash joins in the memory of one GPU: --json FILE, --tuples N, --samples N
#   scripts/gpu-bench.sh join_scaling [...]  resident joins on 1, 2, 4 and 8 GPUs, joins from pinned memory, home and out of core: --json FILE, --b N, ...
#   scripts/gpu-bench.sh transfer [...]    from and to ordinary memory: --json FILE, --gib N, ...
set -euo pipefail
cd "$(dirname "$0")/.."

build() { bash scripts/gpu-build.sh warpjoin_{gpu_primitives,gpu_sort,gpu_gather,gpu_join,gpu_join_scaling,transfer}_bench; }

case "${1:-}" in
  build) build ;;
  primitives | sort | gather | join | join_scaling | transfer)
    bench=build/gpu/warpjoin_gpu_$1_bench
    [ "$1" = transfer ] && bench=build/gpu/warpjoin_transfer_bench
    [ -x "$bench" ] || build
    "$bench" "${@:2}"
    ;;
  *) echo "usage: $0 build | primitives [options] | sort [options] | gather [options] | join [options] | join_scaling [options] | transfer [options]" >&2; exit 2 ;;
esac
