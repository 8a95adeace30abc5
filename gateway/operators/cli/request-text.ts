import type { RequestView } from '../api/answers.ts';
import { timesInWords } from '../common-words.ts';
import { banNote } from './key-text.ts';
import { colour } from './session.ts';
import { type Cell, harmless, linesOf, table } from './table.ts';
import { preciseTimeText } from './time-text.ts';

/** Describes requests in words. */

export const HEAD = ['at', 'status', 'outcome', 'code', 'ms', 'key', 'name', 'request', 'id'] as const;

export const cellsOf = (request: RequestView): Cell[] => [
  preciseTimeText(request.at),
  request.status === undefined ? '-' : String(request.status),
  outcomeOf(request),
  request.code,
  request.status === undefined ? undefined : String(Math.round(request.durationMs)),
  request.keyId,
  request.keyName,
  `${request.method} ${request.path}`,
  request.requestId,
];

function outcomeOf({ status, outcome, decision }: RequestView): string {
  if (status === undefined) return 'in progress';
  return decision?.shadow === undefined ? outcome : 'shadow refusal';
}

export function describeRequests(requests: readonly RequestView[], hasReasons: boolean): string {
  const head = [...HEAD, '?more', '?note'];
  const rows = requests.map((one) => [...cellsOf(one), one.repeated || undefined, banNote(one.keyBan)]);
  const [first = '', ...lines] = table(head, rows, paintStatus).split('\n');
  return [first, ...lines.flatMap((line, at) => [line, ...(hasReasons ? reasonsOf(requests[at]) : [])])].join('\n');
}

/** Paints failures yellow, and those of the gateway or the core red. */
export function paintStatus(text: string, column: string): string {
  if (column !== 'status' || !/^[45]/.test(text)) return text;
  return colour(text.startsWith('5') ? 'red' : 'yellow', text);
}

/** The lines below a request. */
export function reasonsOf(request: RequestView | undefined): string[] {
  const why = [request?.reason, request?.advice].filter((one) => one !== undefined).join(' ');
  return why === '' ? [] : [`    ${harmless(why)}`];
}

/** Describes one request in full. */
export function describeRequest(request: RequestView): string {
  const { decision, gateway, status, code, keyId, keyName, repeated } = request;
  const buckets = decision?.buckets;
  const answer = code === undefined ? String(status) : `${status} ${code}`;
  return linesOf([
    ['request', `${request.method} ${request.path}`],
    ['id', request.requestId],
    ['at', preciseTimeText(request.at)],
    ['response', status === undefined ? 'in progress' : `${answer}, after ${milliseconds(request.durationMs)}`],
    ['outcome', status === undefined ? undefined : outcomeOf(request)],
    ['why', request.reason],
    ['what to do', request.advice],
    ['repeated', repeated > 0 ? `${repeated} more like it in the same minute` : undefined],
    ['key', keyName === undefined ? keyId : `${keyId} (${keyName})`],
    ['note', banNote(request.keyBan)],
    ['secret', request.secretId],
    ['address', request.address],
    ['plan', decision?.plan && `${decision.plan}, table version ${decision.planVersion ?? 'unknown'}`],
    ['refused by', decision?.refusedBy?.join(', ')],
    ['works again', decision?.outcome === 'banned' ? atTime(decision.bannedUntil) : atTime(decision?.retryAt)],
    ['minute', buckets && change(buckets.minute)],
    ['day', buckets && change(buckets.day)],
    ['bad overrides', decision?.rejectedOverrides?.join(', ')],
    ['mode', decision?.mode],
    ['time', timesInWords(request.times, milliseconds)],
    ['gateway', `${gateway.host}, process ${gateway.pid}${gateway.worker ? `, worker ${gateway.worker}` : ''}`],
  ]);
}

const atTime = (time: string | undefined): string | undefined => time && preciseTimeText(time);

const change = ({ before, after, limit }: { before: number; after: number; limit: number }): string =>
  `${before} -> ${after} of ${limit}`;

const milliseconds = (ms: number): string => `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
