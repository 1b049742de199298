#!/usr/bin/env bash
# Compiles and links the HIP build (gfx90a) of the native code and its tests. Needs hipcc and rocPRIM; no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake -S . -B build/hip -DWARPJOIN_GPU=hip -DWARPJOIN_TESTS=ON
cmake --build build/hip --parallel "$(nproc)"
