// For test/integration/gpu-driver.test.ts, in a process of its own that loads another libcuda.so.1: prints what diagnose() finds
// and what an engine for GPUs says, as JSON.
import { createEngine, diagnose } from '../../dist/index.js';

const { findings } = await diagnose({ trial: false });
const error = await createEngine({ device: 'gpu' }).catch(({ code, message }) => ({ code, message }));
console.log(JSON.stringify({ found: findings.filter(({ check }) => check === 'gpu'), error }));
