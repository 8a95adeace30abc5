import { ERRORS } from '../../shared/http/errors.ts';
import { PLAN_NAMES, type PlanTable } from '../limiter/plans.ts';
import { usualBanAfter } from '../limiter/refusals.ts';

/** The parts of the page that are made from tables: plans with their numbers, the worked example, errors. */

const DAY_SECONDS = 86_400;

const number = (value: number): string => value.toLocaleString('en-US');
const plural = (count: number, one: string): string => `${number(count)} ${one}${count === 1 ? '' : 's'}`;

/** Each part by its mark in the page. */
export const pageParts = (plans: PlanTable): Readonly<Record<string, string>> => ({
  plans: plansTable(plans),
  example: workedExample(plans),
  errors: errorsTable(),
});

function plansTable(plans: PlanTable): string {
  const rows = PLAN_NAMES.map((plan) => {
    const { minute, day, ban_after = minute && usualBanAfter(minute), ban_seconds = 0 } = plans[plan];
    const limits = [minute, day].map((limit) => (limit === undefined ? 'agreed with you' : number(limit)));
    const strikes = ban_after === undefined ? 'five times the minute limit' : number(ban_after);
    return [
      `<th scope="row">${plan[0]?.toUpperCase()}${plan.slice(1)}</th>`,
      ...[...limits, `${strikes}, ${plural(ban_seconds, 'second')}`].map((text) => `<td>${text}</td>`),
    ];
  });
  return rows.map((cells) => `<tr>${cells.join('')}</tr>`).join('\n');
}

/** With the first plan's own numbers. */
function workedExample({ free: { minute = 1, day = 1 } }: PlanTable): string {
  const [perMinute, perDay] = [60 / minute, DAY_SECONDS / day];
  const seconds = (value: number) => (Number.isInteger(value) ? number(value) : value.toFixed(1));
  return `<ol>
<li>12:00:00. You have sent nothing for a while: the minute's ${plural(minute, 'request')} are all there. You send ${number(minute)} at once, and all are admitted. <code>X-RateLimit-Remaining</code> counts down to 0.</li>
<li>12:00:00. One more gets <code>429</code> with <code>Retry-After: ${Math.ceil(perMinute)}</code>. It cost nothing: one request comes back every ${seconds(perMinute)} s.</li>
<li>12:00:${String(Math.min(59, Math.ceil(perMinute))).padStart(2, '0')}. You have waited as told: the request is admitted. Had you sent it sooner, it would have been refused again, and told a later place in line.</li>
<li>Later. The day's ${plural(day, 'request')} are used up. They come back one every ${seconds(perDay)} s, so the next refusal says <code>Retry-After: ${Math.ceil(perDay)}</code>.</li>
</ol>`;
}

const errorsTable = (): string =>
  Object.entries(ERRORS)
    .map(([code, { status, message }]) => `<tr><td>${status}</td><td><code>${code}</code></td><td>${message}</td></tr>`)
    .join('\n');
