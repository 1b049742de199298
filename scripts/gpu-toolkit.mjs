// Prints which GPU toolkit a build here would use: cuda, hip or none. WARPJOIN_GPU overrides it.
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';

const onPath = (tool) => (process.env.PATH ?? '').split(delimiter).some((dir) => existsSync(join(dir, tool)));

function toolkit() {
  const wanted = process.env.WARPJOIN_GPU;
  if (wanted && wanted !== 'auto') return wanted;
  if (onPath('nvcc') || existsSync('/usr/local/cuda/bin/nvcc')) return 'cuda';
  if (onPath('hipcc') || existsSync('/opt/rocm/bin/hipcc')) return 'hip';
  return 'none';
}

// A GPU build goes through CMake; without it the host-only addon is built.
console.log(onPath('cmake') ? toolkit() : 'none');
