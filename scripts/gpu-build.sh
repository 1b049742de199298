#!/usr/bin/env bash
# Builds programs for GPUs to build/gpu, linked statically but for libc, so that they also run on a GPU host without Google
# Benchmark and GoogleTest: scripts/gpu-build.sh TARGET...
#
# WARPJOIN_CUDA_ARCHITECTURES as in CONTRIBUTING.md, JOBS (default: all cores).
set -euo pipefail
cd "$(dirname "$0")/.."
cmake -S . -B build/gpu -G Ninja -DWARPJOIN_TESTS=ON -DWARPJOIN_BENCH=ON -DWARPJOIN_GPU=cuda \
  -DCMAKE_EXE_LINKER_FLAGS="-static-libstdc++ -static-libgcc -s"
ninja -C build/gpu -j "${JOBS:-$(nproc)}" "$@"
