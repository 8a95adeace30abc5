import { z } from 'zod';
import { time } from '../shared/schemas/answer-parts.ts';

/** What an operator should know about one dependency of the gateway. */
export const CheckResult = z.object({
  about: z.string(),
  /**
   * A warning has no effect yet. A fault has an effect now or in the next incident. Unknown means that the dependency
   * did not answer.
   */
  status: z.enum(['good', 'warning', 'fault', 'unknown']),
  found: z.string(),
  /** What the operator can do. */
  advice: z.string().optional(),
  /** The time of the first check with this finding; good findings have none. */
  since: time.optional(),
});
export type CheckResult = Readonly<z.infer<typeof CheckResult>>;

/** Whether something is, or may be, wrong. */
export const isBad = ({ status }: Pick<CheckResult, 'status'>): boolean => status === 'fault' || status === 'unknown';

export const good = (about: string, found: string): CheckResult => ({ about, status: 'good', found });

const withAdvice =
  (status: CheckResult['status']) =>
  (about: string, found: string, advice: string): CheckResult => ({ about, status, found, advice });

export const warning = withAdvice('warning');
export const fault = withAdvice('fault');
export const unknown = withAdvice('unknown');

/** A part that did not answer in time. */
export const silent = (about: string, found = 'does not answer'): CheckResult =>
  unknown(about, found, 'Check whether it or its machine is hung.');
