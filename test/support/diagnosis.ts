/** What the tests of diagnose() share: a fault is planted, and one finding is expected. */
import { expect, test } from 'vitest';
import { diagnoseSystem, type Finding } from '../../lib/diagnose.js';
import { type FakeSystem, fakeSystem, gpuAddon } from './fake-system.js';

export const findings = async (system: FakeSystem): Promise<Finding[]> => (await diagnoseSystem(fakeSystem(system))).findings;
export const problems = (all: Finding[]): Finding[] => all.filter(({ status }) => status === 'warning' || status === 'error');

export interface Fault {
  fault: string;
  system: FakeSystem;
  check: string;
  status: Finding['status'];
  message: RegExp;
  remedy: RegExp;
  /** Other checks that have a problem with it. */
  also?: string[];
}

/** Each plants its fault, and expects one finding of the check, and no other problem. */
export function testFaults(faults: Fault[]): void {
  test.each(faults)('$check: $fault', async ({ system, check, status, message, remedy, also = [] }) => {
    const all = await findings(system);
    const found = all.filter((one) => one.check === check && one.status !== 'ok');
    expect(found).toEqual([
      { check, status, message: expect.stringMatching(message), remedy: expect.stringMatching(remedy) } satisfies Finding,
    ]);
    for (const text of [found[0]!.message, found[0]!.remedy!]) expect(text).not.toMatch(/\n|undefined|NaN|\.$/);
    expect(problems(all).filter((one) => one.check !== check && !also.includes(one.check))).toEqual([]);
  });
}

export const addonOf = (...args: Parameters<typeof gpuAddon>) => ({ addon: gpuAddon(...args), from: '@warpjoin/linux-x64-cuda' });
export const unloaded = (...tried: [name: string, reason: string][]) => ({
  addon: undefined,
  from: undefined,
  tried: tried.map(([name, reason]) => ({ name, reason })),
});
export const NO_DRIVER = {
  driverVersion: '',
  errorName: 'cudaErrorInsufficientDriver',
  error: 'CUDA driver version is insufficient',
};
export const failing = (errorName: string, error = 'it fails') => addonOf([], { errorName, error });
