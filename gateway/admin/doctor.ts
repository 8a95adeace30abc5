import type { PlanCache } from '../access/plan-cache.ts';
import { PLAN_NAMES, STORED_FIELDS } from '../access/plans.ts';
import { type Finding, fault, good, warning } from '../finding.ts';
import type { AdminOperation } from './parts.ts';
import { shownRejected } from './rejected-values.ts';

/** Looks at all that the gateway depends on: Redis, the cores, the plan table. Changes nothing, and can be asked any time. */
export const examine: AdminOperation = async ({ parts: { examineOthers, planCache } }) => {
  const findings = [...(await examineOthers()), ...examinePlans(planCache)];
  return { status: 200, body: { findings } };
};

function examinePlans({ rejected, isReadable, table }: PlanCache): Finding[] {
  if (!isReadable)
    return [
      fault('plan table', 'cannot be read; the last good one stays', 'TYPE gateway:plans must be hash; see the log.'),
    ];
  const bad = shownRejected(rejected).map(({ field, value, kept }) =>
    fault('plan table', `${field} is ${value ?? 'missing'}; ${kept ?? 'nothing'} stays in force`, adviceFor(field)),
  );
  const shadows = PLAN_NAMES.filter((name) => table[name].mode === 'shadow').map((name) =>
    warning('plan table', `${name} is in shadow mode: it refuses nothing`, `ctl plans set ${name} --mode enforce`),
  );
  return bad.length + shadows.length === 0 ? [good('plan table', 'every value is in force')] : [...bad, ...shadows];
}

function adviceFor(field: string): string {
  if (!STORED_FIELDS.includes(field)) return `No plan has it: HDEL gateway:plans ${field}`;
  const [plan = '', name = ''] = field.split('.');
  return `ctl plans set ${plan} --${name.replaceAll('_', '-')} …`;
}
