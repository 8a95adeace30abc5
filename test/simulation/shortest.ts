import type { Plan, Step } from './plan.ts';
import type { Result } from './run.ts';

/** The number of runs after which the search for a shorter history stops. */
const MOST_RUNS = 150;

/**
 * Removes steps from a plan as long as its run violates the same invariant (delta debugging: halves first, then smaller
 * parts), then halves the durations of the remaining steps. @returns the shortest plan found and its result
 */
export async function shortest(
  plan: Plan,
  first: Result,
  runAgain: (plan: Plan) => Promise<Result>,
): Promise<{ readonly plan: Plan; readonly result: Result }> {
  const at = first.violation?.at ?? 0;
  let best = { plan, result: first };
  let runs = 0;
  const tries = async (steps: readonly Step[]): Promise<boolean> => {
    runs += 1;
    const shorter = { ...plan, steps };
    const result = await runAgain(shorter);
    const isSame = result.violation?.invariant === first.violation?.invariant;
    if (isSame) best = { plan: shorter, result };
    return isSame;
  };
  // Steps after the violation do not matter.
  await tries(plan.steps.filter((step) => step.at <= at));
  for (let size = Math.ceil(best.plan.steps.length / 2); size >= 1 && runs < MOST_RUNS; ) {
    let isShorter = false;
    for (let from = 0; from < best.plan.steps.length && runs < MOST_RUNS; ) {
      const { steps } = best.plan;
      const hasSucceeded = steps.length > size && (await tries([...steps.slice(0, from), ...steps.slice(from + size)]));
      if (!hasSucceeded) from += size;
      isShorter ||= hasSucceeded;
    }
    if (!isShorter || size > 1) size = size === 1 ? 0 : Math.ceil(size / 2);
  }
  for (const at of best.plan.steps.keys()) {
    for (let isShorter = true; isShorter && runs < MOST_RUNS; ) {
      const { steps } = best.plan;
      const step = steps[at] as Step;
      isShorter = 'forMs' in step && (await tries(steps.with(at, { ...step, forMs: Math.floor(step.forMs / 2) })));
    }
  }
  return best;
}
