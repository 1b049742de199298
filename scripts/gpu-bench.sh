#!/usr/bin/env bash
# Measures GPUs against the ceilings of their memory and links.
#
#   scripts/gpu-bench.sh build             compiles the programs to build/gpu, linked statically but for libc: they also run
#                                          on a GPU host without Google Benchmark
#   scripts/gpu-bench.sh primitives [...]  partitions, sorts and concatenations: --json FILE, --tuples N
#   scripts/gpu-bench.sh sort [...]        sorts from host to host and resident: --json FILE, --keys N, --pairs N, ...
#
# WARPJOIN_CUDA_ARCHITECTURES (default 90).
set -euo pipefail
cd "$(dirname "$0")/.."
dir=build/gpu

build() {
  cmake -S . -B "$dir" -G Ninja -DWARPJOIN_TESTS=ON -DWARPJOIN_BENCH=ON -DWARPJOIN_GPU=cuda \
    -DWARPJOIN_CUDA_ARCHITECTURES="${WARPJOIN_CUDA_ARCHITECTURES:-90}" \
    -DCMAKE_EXE_LINKER_FLAGS="-static-libstdc++ -static-libgcc -s"
  ninja -C "$dir" -j "${JOBS:-$(nproc)}" warpjoin_gpu_primitives_bench warpjoin_gpu_sort_bench warpjoin_transfer_bench
}

case "${1:-}" in
  build) build ;;
  primitives | sort)
    bench=$dir/warpjoin_gpu_$1_bench
    [ -x "$bench" ] || build
    "$bench" "${@:2}"
    ;;
  *) echo "usage: $0 build | primitives [options] | sort [options]" >&2; exit 2 ;;
esac
