import { ERRORS } from '../../shared/http/errors.ts';
import { PLAN_NAMES, type PlanTable } from '../limiter/plans.ts';
import { usualBanAfter } from '../limiter/refusals.ts';
import { FIGURES } from './figures.ts';
import { inline } from './operations-page.ts';

/** Renders the parts of the page that come from tables: the plans, the worked example and the errors. */

const DAY_SECONDS = 86_400;

const number = (value: number): string => value.toLocaleString('en-US');
const plural = (count: number, one: string): string => `${number(count)} ${one}${count === 1 ? '' : 's'}`;

/** The parts by their marks in the page. */
export const pageParts = (plans: PlanTable): Readonly<Record<string, string>> => ({
  plans: plansTable(plans),
  example: workedExample(plans),
  errors: errorsTable(),
  ...FIGURES,
});

function plansTable(plans: PlanTable): string {
  const rows = PLAN_NAMES.map((plan) => {
    const { minute, day, ban_after = minute && usualBanAfter(minute), ban_seconds = 0 } = plans[plan];
    const limits = [minute, day].map((limit) => (limit === undefined ? 'by agreement' : number(limit)));
    const strikes = ban_after === undefined ? 'five times the minute limit' : number(ban_after);
    const banned = ban_seconds % 60 === 0 ? plural(ban_seconds / 60, 'minute') : plural(ban_seconds, 'second');
    return [
      `<th scope="row">${plan[0]?.toUpperCase()}${plan.slice(1)}</th>`,
      ...[...limits, strikes, banned].map((text) => `<td>${text}</td>`),
    ];
  });
  return rows.map((cells) => `<tr>${cells.join('')}</tr>`).join('\n');
}

/** Uses the first plan's own numbers. */
function workedExample({ free: { minute = 1, day = 1 } }: PlanTable): string {
  const [perMinute, perDay] = [60 / minute, DAY_SECONDS / day];
  const seconds = (value: number) => (Number.isInteger(value) ? number(value) : value.toFixed(1));
  return `<p>With ${plural(minute, 'request')} per minute, one comes back every ${seconds(perMinute)} s: after ${number(minute)} requests at once, the next one gets <code>Retry-After: ${Math.ceil(perMinute)}</code>. With ${number(day)} per day, one comes back every ${seconds(perDay)} s: once all are used, it gets <code>Retry-After: ${Math.ceil(perDay)}</code>.</p>`;
}

const errorsTable = (): string =>
  Object.entries(ERRORS)
    .map(
      ([code, { status, message, cure }]) =>
        `<tr id="error-${code}"><td>${status}</td><td><code>${code}</code></td><td>${message}<br />${inline(cure)}</td></tr>`,
    )
    .join('\n');
