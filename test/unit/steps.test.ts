import { expect, test } from 'vitest';
import type { Call } from '../../lib/operators/call.js';
import { runSteps } from '../../lib/operators/steps.js';
import type { CutStep, MergeStep, Plan } from '../../lib/plan/plan.js';

const estimate = { rows: 0, bytes: 0, milliseconds: 0 };
const merge: MergeStep = { op: 'merge', label: 'merge', estimate, side: null };
const cut: CutStep = { op: 'cut', label: 'cut', estimate, begin: 0, end: 1 };
const planOf = (...steps: (MergeStep | CutStep)[]) => ({ steps }) as Plan<MergeStep | CutStep>;

/** Notes which steps run. */
function record() {
  const ran: string[] = [];
  const call = {
    follow() {},
    async step(step: { label: string }, work: () => Promise<unknown>) {
      ran.push(step.label);
      return work();
    },
  };
  return { ran, call: call as unknown as Call };
}

test('steps run in order, each by the entry of its kind', async () => {
  const { ran, call } = record();
  const seen: unknown[] = [];
  const done = await runSteps(call, planOf(merge, cut, merge), {
    async merge(step) {
      seen.push(step);
    },
    async cut(step) {
      seen.push(step.end);
    },
  });
  expect(done).toBeUndefined();
  expect(ran).toEqual(['merge', 'cut', 'merge']);
  expect(seen).toEqual([merge, 1, merge]);
});

test('a step may put others in place of those behind it, or end the plan with something else to go on with', async () => {
  const { ran, call } = record();
  const plan = planOf(merge, cut, cut);
  const instead = await runSteps<MergeStep | CutStep, string>(call, plan, {
    async merge() {
      plan.steps = [merge, { ...cut, label: 'anew' }, { ...cut, label: 'never' }];
    },
    cut: async () => 'instead',
  });
  expect(instead).toBe('instead');
  expect(ran).toEqual(['merge', 'anew']);
});

test('a kind of step that nothing runs is an error of the library', async () => {
  const { call } = record();
  await expect(runSteps(call, planOf(cut), {})).rejects.toMatchObject({ code: 'ERR_INTERNAL', message: /cut/ });
});
