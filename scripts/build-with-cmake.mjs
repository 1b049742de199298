// Builds the addon with a GPU backend by CMake: build-with-cmake.mjs cuda|hip
import { copyFileSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { buildAddon, root } from './cmake-addon.mjs';

const backend = process.argv[2];
// The folder of scripts/gpu-build.sh, or build-hip.sh: programs for GPUs and the addon share their objects.
const addon = buildAddon(backend === 'cuda' ? 'gpu' : backend, [`-DWARPJOIN_GPU=${backend}`]);
const place = join(root, 'build', 'Release');
mkdirSync(place, { recursive: true });
copyFileSync(addon, join(place, 'warpjoin.node'));
