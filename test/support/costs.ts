/** The cost model of tests. */
import { COSTS } from '../../lib/plan/costs.js';

/**
 * Lets plans do on devices what can be done there: gather, and sort and merge in joint memory. The tables of tests are too
 * small for it to be faster.
 */
export function preferDevices(): void {
  const speeds = { linkBytesPerSecond: 1e30, transferBytesPerSecond: 1e30, gpuPassBytesPerSecond: 1e30 };
  Object.assign(COSTS, { deviceGather: 0, deviceCopy: 0, ...speeds });
}
