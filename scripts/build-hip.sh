#!/usr/bin/env bash
# Compiles and links the HIP build (gfx90a) of the native code, its tests and benchmarks, or the targets named:
# scripts/build-hip.sh [TARGET...]. Needs hipcc and rocPRIM; no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake -S . -B build/hip -DWARPJOIN_GPU=hip -DWARPJOIN_TESTS=ON -DWARPJOIN_BENCH=ON
cmake --build build/hip --parallel "$(nproc)" ${1:+--target "$@"}
