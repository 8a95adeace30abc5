import type { DecisionReport, RequestView } from '../api/answers.ts';
import { timesInWords } from '../clients.ts';
import { counted, milliseconds, number } from './words.ts';

/** Describes requests in words. */

const OUTCOMES: Readonly<Record<string, string>> = {
  admitted: 'Admitted',
  refused: 'Refused',
  banned: 'Banned',
  forbidden: 'Not in scope',
  unknown: 'Unknown key',
  disabled: 'Key disabled',
  expired: 'Key expired',
  elsewhere: 'Other network',
  malformed: 'No valid key',
  shed: 'Shed under load',
  unavailable: 'Redis unavailable',
  unusable: 'Key unreadable',
  reference: 'Reference file',
  own: 'Answered by the gateway',
  invalid: 'Invalid request',
  failed: 'Failed',
  left: 'Client left',
};

const LEFT = 499;
const SERVER_FAULT = 500;
const FIRST_FAILURE = 400;

interface Outcome {
  readonly text: string;
  /** The style of the badge. */
  readonly look: string;
}

export function outcomeOf({ status, outcome, decision }: RequestView): Outcome {
  if (status === undefined) return { text: 'In progress', look: '' };
  if (status === LEFT) return { text: 'Client left', look: 'warning' };
  const text = OUTCOMES[outcome] ?? outcome;
  if (outcome === 'admitted' && status >= SERVER_FAULT) return { text: 'Failed', look: 'fault' };
  if (decision?.shadow !== undefined) return { text: 'Over the limit, in shadow mode', look: 'warning' };
  if (status < FIRST_FAILURE || outcome === 'admitted') return { text, look: 'good' };
  return { text, look: status >= SERVER_FAULT || outcome === 'banned' ? 'fault' : 'warning' };
}

/** Describes what has happened to it so far. */
export function happened({ method, path, status, code, durationMs, address, secretId }: RequestView): string {
  const what = `${method} ${path} came from ${address}${secretId === undefined ? '' : ` with the secret ${secretId}`}`;
  if (status === undefined) return `${what}. It is in progress.`;
  if (status === LEFT) return `${what} and ran for ${milliseconds(durationMs)}.`;
  const named = code === undefined ? String(status) : `${status} ${code}`;
  return `${what} and was answered with ${named} after ${milliseconds(durationMs)}.`;
}

/** When the limit or the ban that refused it admits requests again; undefined if there was none. */
export const worksAgainAt = ({ decision }: RequestView): string | undefined =>
  decision?.outcome === 'banned' ? decision.bannedUntil : decision?.retryAt;

export function repeatedInWords({ repeated, decision }: RequestView): string {
  const who = decision === undefined ? 'Its address' : 'The key';
  return `${who} sent ${number(repeated)} more like it in the same minute.`;
}

/** Describes how its time is split; undefined if it reached no part. */
export const splitInWords = ({ times }: RequestView): string | undefined => timesInWords(times, milliseconds);

type Bucket = NonNullable<DecisionReport['buckets']>['day'];

export const bucketInWords = ({ before, after, limit }: Bucket): string =>
  before === after
    ? `${tokens(before)} of ${counted(limit, 'request')} left`
    : `${tokens(before)} → ${tokens(after)} of ${counted(limit, 'request')} left`;

/** Rounds down to two decimals, because a bucket with 0.999 has no request left. */
const tokens = (value: number): string => number(Math.floor(value * 100) / 100);

/** The anchor in the runbook about it; undefined if there is none. */
export function runbookPageOf({ status, outcome, code }: RequestView): string | undefined {
  if (status === undefined || status === LEFT || status < FIRST_FAILURE) return undefined;
  return OF_OUTCOMES[outcome] ?? OF_CODES[code ?? ''];
}

const OF_OUTCOMES: Readonly<Record<string, string>> = {
  refused: 'a-client-complains-of-429',
  banned: 'a-client-complains-of-429',
  unknown: 'gatewayunknownkeys',
  elsewhere: 'gatewaysecretelsewhere',
  shed: 'gatewayshedding',
  unavailable: 'gatewaydecisionslocal',
  unusable: 'gatewaykeydatabad',
};

const OF_CODES: Readonly<Record<string, string>> = {
  rate_limit_exceeded: 'gatewayunknownkeys',
  bad_gateway: 'coreunreachable',
  gateway_timeout: 'coreerrors',
  internal_error: 'gatewayerrorratiohigh',
};
