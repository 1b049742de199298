// Prints which GPU toolkit a build here would use: cuda, hip or none. WARPJOIN_GPU asks for one; what it needs must be there.
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';

const { CUDACXX, CUDA_PATH = '/usr/local/cuda', PATH = '', WARPJOIN_GPU } = process.env;

const onPath = (tool) => PATH.split(delimiter).some((folder) => existsSync(join(folder, tool)));
const isThere = ({ compiler, places }) => onPath(compiler) || places.some((place) => place && existsSync(place));

/** Compilers, and where CMake looks for them beside PATH. */
const toolkits = {
  cuda: { compiler: 'nvcc', places: [CUDACXX, join(CUDA_PATH, 'bin', 'nvcc'), '/usr/local/cuda/bin/nvcc'] },
  hip: { compiler: 'hipcc', places: ['/opt/rocm/bin/hipcc'] },
};

/** Throws with the reason where the toolkit that was asked for can't be used. */
function chosen() {
  const wanted = WARPJOIN_GPU || 'auto';
  const hasCMake = onPath('cmake');
  if (wanted === 'none') return wanted;
  // A GPU build goes through CMake; without it the host-only addon is built.
  if (wanted === 'auto') return (hasCMake && Object.keys(toolkits).find((name) => isThere(toolkits[name]))) || 'none';
  const toolkit = toolkits[wanted];
  if (!toolkit) throw new Error(`WARPJOIN_GPU is "${wanted}"; expected auto, cuda, hip or none`);
  if (!hasCMake) throw new Error(`WARPJOIN_GPU is "${wanted}" but there is no cmake in PATH: install CMake 3.22 or later`);
  if (!isThere(toolkit)) {
    const others = [...new Set(toolkit.places.filter(Boolean))].join(' or ');
    throw new Error(`WARPJOIN_GPU is "${wanted}" but there is no ${toolkit.compiler} in PATH, and no ${others}`);
  }
  return wanted;
}

try {
  console.log(chosen());
} catch (error) {
  console.error(`warpjoin: ${error.message}`);
  process.exitCode = 1;
}
