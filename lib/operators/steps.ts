/** The one interpreter of plans: what an operator does for a kind of step is an entry in its table. */
import { WarpjoinError } from '../errors.js';
import type { Plan, Step } from '../plan/plan.js';
import type { Call } from './call.js';

/** An entry may give what the call goes on with in place of the steps that are left. */
export type StepTable<S extends Step, Instead = never> = {
  readonly [Op in S['op']]?: (step: Extract<S, { op: Op }>) => Promise<Instead | undefined> | Promise<void>;
};

/** Runs a plan's steps in order. The one that is under way may put others in place of those behind it. */
export async function runSteps<S extends Step, Instead = never>(
  call: Call,
  plan: Plan<S>,
  table: StepTable<S, Instead>,
): Promise<Instead | undefined> {
  call.follow(plan);
  for (let next = 0; next < plan.steps.length; next++) {
    const step = plan.steps[next]!;
    const run = table[step.op as S['op']] as ((step: S) => Promise<Instead | undefined>) | undefined;
    if (!run) throw new WarpjoinError('ERR_INTERNAL', `Nothing runs the step ${step.op}.`);
    const instead = await call.step(step, () => run(step));
    if (instead !== undefined) return instead;
  }
  return undefined;
}
