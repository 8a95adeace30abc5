import { ERRORS, type ErrorCode } from '../../shared/http/errors.ts';
import { PLAN_NAMES, type PlanTable } from '../limiter/plans.ts';
import { usualBanAfter } from '../limiter/refusals.ts';
import { FIGURES } from './figures.ts';

/** The parts of the page that are made from tables: plans with their numbers, the worked example, errors. */

const DAY_SECONDS = 86_400;

const number = (value: number): string => value.toLocaleString('en-US');
const plural = (count: number, one: string): string => `${number(count)} ${one}${count === 1 ? '' : 's'}`;

/** Each part by its mark in the page. */
export const pageParts = (plans: PlanTable): Readonly<Record<string, string>> => ({
  plans: plansTable(plans),
  example: workedExample(plans),
  errors: errorsTable(),
  ...FIGURES,
});

function plansTable(plans: PlanTable): string {
  const rows = PLAN_NAMES.map((plan) => {
    const { minute, day, ban_after = minute && usualBanAfter(minute), ban_seconds = 0 } = plans[plan];
    const limits = [minute, day].map((limit) => (limit === undefined ? 'agreed with you' : number(limit)));
    const strikes = ban_after === undefined ? 'five times the minute limit' : number(ban_after);
    const banned = ban_seconds % 60 === 0 ? plural(ban_seconds / 60, 'minute') : plural(ban_seconds, 'second');
    return [
      `<th scope="row">${plan[0]?.toUpperCase()}${plan.slice(1)}</th>`,
      ...[...limits, strikes, banned].map((text) => `<td>${text}</td>`),
    ];
  });
  return rows.map((cells) => `<tr>${cells.join('')}</tr>`).join('\n');
}

/** With the first plan's own numbers. */
function workedExample({ free: { minute = 1, day = 1 } }: PlanTable): string {
  const [perMinute, perDay] = [60 / minute, DAY_SECONDS / day];
  const seconds = (value: number) => (Number.isInteger(value) ? number(value) : value.toFixed(1));
  return `<p>With ${plural(minute, 'request')} per minute, one comes back every ${seconds(perMinute)} s: after ${number(minute)} requests at once, the next one gets <code>Retry-After: ${Math.ceil(perMinute)}</code>. With ${number(day)} per day, one comes back every ${seconds(perDay)} s: once all are used, it gets <code>Retry-After: ${Math.ceil(perDay)}</code>.</p>`;
}

/** What a client does about each error. */
const CURES: Readonly<Record<ErrorCode, string>> = {
  invalid_request: 'The message names what is malformed. Correct the request: the same one is refused again.',
  invalid_parameter: 'The message names the parameter and the values that it may have.',
  unauthorized:
    'Send <code>Authorization: Bearer as_…</code> with the whole key. If it is right, it was revoked, disabled or replaced, it has expired, or it is bound to other networks: ask whoever issued it.',
  insufficient_scope:
    'Use a key whose scope covers the method: <code>read</code> for GET, <code>write</code> for all others.',
  not_found: 'Check the path and the id.',
  method_not_allowed: 'The header <code>Allow</code> lists the methods that this path has.',
  request_timeout: 'Send head and body without long pauses, on a new connection.',
  conflict: 'Read what is stored now, and decide again.',
  payload_too_large: 'Send a smaller body.',
  uri_too_long: 'Shorten the query.',
  unsupported_media_type:
    'Send JSON with <code>Content-Type: application/json</code>, in UTF-8 and without a Content-Encoding.',
  expectation_failed: 'Leave out the header <code>Expect</code>, or send <code>100-continue</code>.',
  rate_limit_exceeded:
    'Wait for the seconds in <code>Retry-After</code>, then send the request again. If that happens often, spread your requests, or ask for a larger plan.',
  key_banned:
    'Stop sending until the time in <code>Retry-After</code>. Have your client wait after each 429: then it is never banned.',
  headers_too_large: 'Send fewer or shorter headers.',
  internal_error: 'Send the request again later. If it lasts, report the <code>X-Request-Id</code>.',
  bad_gateway:
    'Send a GET again. Look whether a POST took effect before you repeat it, or send it with an <code>Idempotency-Key</code>.',
  unavailable: 'Send the request again after <code>Retry-After</code>, or after a second.',
  gateway_timeout:
    'Send a GET again. Look whether a POST took effect before you repeat it, or send it with an <code>Idempotency-Key</code>.',
  http_version_not_supported: 'Use HTTP/1.1.',
};

const errorsTable = (): string =>
  (Object.keys(ERRORS) as ErrorCode[])
    .map((code) => {
      const { status, message } = ERRORS[code];
      return `<tr id="error-${code}"><td>${status}</td><td><code>${code}</code></td><td>${message}<br />${CURES[code]}</td></tr>`;
    })
    .join('\n');
