import { setTimeout as sleep } from 'node:timers/promises';
import { InvalidArgumentError } from 'commander';
import { boundedMap } from '../../../../shared/bounded-map.ts';
import { isKeyId } from '../../../limiter/credential.ts';
import type { ActivityView, RequestsAnswer, RequestView } from '../../api/answers.ts';
import { lacksOlder, revokedKeys, timesInWords } from '../../clients.ts';
import { AdminError } from '../admin-client.ts';
import type { Command } from '../command.ts';
import { banNote, findKey } from '../key.ts';
import { findNamed, type Kind, type Named } from '../named.ts';
import type { Session } from '../session.ts';
import { type Column, colour, harmless, linesOf, preciseTimeText, table, timeText, withTimeTexts } from '../text.ts';
import { count, seconds, TAG_FILTER, time, wantedTag } from '../values.ts';

const SHOWN = 50;
const SHOWN_BEFORE = 10;
const MOST_A_CALL = 200;

const USE_THE_ID =
  'Names cannot be looked up now: use the id of the key. `ctl requests` lists the ids of recent requests.';

type Filters = Readonly<Record<string, string>>;

interface RequestOptions extends Readonly<Partial<Record<'tag' | 'status' | 'code' | 'from' | 'to', string>>> {
  readonly key?: string;
  readonly text?: string;
  readonly limit?: number;
  readonly follow?: boolean;
  readonly why?: boolean;
}

export function add(program: Command, session: Session): void {
  const requests = program
    .sub('requests', 'list the last requests on all gateways, and explain their responses')
    .option('--key <key>', 'only requests with this key, by its id or full name')
    .option(...TAG_FILTER, wantedTag)
    .option('--status <status>', 'only requests with this status, such as 429, or this class, such as 4xx')
    .option('--code <code>', 'only requests with this error code, such as key_banned')
    .option('--text <text>', 'only requests whose id, path, address, key id, code or outcome contains this text')
    .option(
      '--from <time>',
      'only requests since this time, such as 2030-12-31T00:00:00Z, or this long ago, such as 15m',
      moment,
    )
    .option('--to <time>', 'only requests before this time', moment)
    .option(
      '--limit <number>',
      `maximum number of requests; default: ${SHOWN}, or ${SHOWN_BEFORE} earlier ones with --follow`,
      count,
    )
    .option('--follow', 'print new requests as they complete, until Ctrl-C')
    .option('--why', 'print the reason under each request that was not served')
    .notes(`
Each gateway keeps its last RECENT_REQUESTS requests in memory, failures longer than successes; older ones are in the
log. If a key or address is refused many times in a minute, only the first refusals are kept: \`more\` counts the
others. The newest request comes first, or with --follow the oldest. --follow --json prints one line per request. If
only one request matches, it is shown in full: the reason and what to do, both buckets before and after, and a
breakdown of its duration. Gateways that do not respond are listed on standard error.

Examples:
  ctl requests                                      the last 50
  ctl requests --text 1d9d2e71-70ef-42a0-853b       one request, by its X-Request-Id, and why it was refused
  ctl requests --key acme --status 4xx --why        which of a client's requests were refused, and why
  ctl requests --tag customer=acme --status 429     requests with any of a customer's keys
  ctl requests --code bad_gateway --from 15m        requests that failed in the core in the last 15 minutes
  ctl requests --from 2030-12-31T10:00:00Z --to 2030-12-31T10:05:00Z --limit 1000
  ctl requests --status 5xx --follow                failures as they happen
  ctl --json requests --status 429 | jq -r '.requests[].keyName' | sort | uniq -c`)
    .action(async ({ key, text, limit, follow, why = false, ...others }: RequestOptions) => {
      if (follow && others.to !== undefined)
        requests.error('error: --to cannot be used with --follow, which does not end.');
      const filters = {
        ...(key !== undefined && { keyId: await keyIdOf(session, key) }),
        ...others,
        ...(text !== undefined && { q: session.withoutSecret(text) }),
      };
      if (follow) await followRequests(session, filters, limit ?? SHOWN_BEFORE, why);
      else await list(session, filters, limit ?? SHOWN, why);
    });
}

/**
 * Finds the id of a key. A revoked key can still be found by its name: the audit log has its id.
 * @throws {AdminError} if none has this name, or if names cannot be looked up because the store is unavailable
 */
async function keyIdOf(session: Session, given: string): Promise<string> {
  try {
    return (await findKey(session, given)).id;
  } catch (fault) {
    if (fault instanceof AdminError && fault.status === 503)
      throw new AdminError(fault.code, `${fault.message} ${USE_THE_ID}`, { status: 503, cause: fault });
    if (!(fault instanceof AdminError && fault.status === 404)) throw fault;
    const revoked = await revokedKeys(session.get, given);
    const [last] = revoked;
    if (last === undefined) throw fault;
    const candidates = revoked.map(({ target, at }) => ({ id: target, name: given, at }));
    if (revoked.length > 1) return (await findNamed(session, REVOKED, given, candidates, false)).id;
    session.printNote(`Note: the key ${harmless(given)} was revoked. Its id was ${last.target}.`);
    return last.target;
  }
}

const REVOKED: Kind<Named & Pick<ActivityView, 'at'>> = {
  noun: 'revoked key',
  isId: isKeyId,
  columns: [['revoked', ({ at }) => timeText(at, process.stderr)]],
};

async function list(session: Session, filters: Filters, most: number, hasReasons: boolean): Promise<void> {
  const [found, silent] = [[] as RequestView[], new Set<string>()];
  const asked = { ...filters, limit: String(Math.min(most, MOST_A_CALL)) };
  let since = '';
  for await (const page of session.parts<RequestsAnswer>('/requests', asked)) {
    found.push(...page.requests);
    for (const one of page.missing) silent.add(one);
    since = page.since;
    if (found.length >= most) break;
  }
  const [requests, missing] = [found.slice(0, most), [...silent]];
  session.noteMissing(missing);
  if (lacksOlder(requests, since, filters.from))
    session.printNote(
      `Note: requests before ${timeText(since, process.stderr)} may be missing, because a gateway or worker started then.`,
    );
  session.print({ requests, missing, since }, () => {
    const [only, ...others] = requests;
    if (only === undefined) return 'No recent request matches.';
    return others.length === 0 ? describeRequest(only) : describeRequests(requests, hasReasons);
  });
}

/** Reads a time, or how long ago it was. @throws {InvalidArgumentError} for anything else */
function moment(text: string): string {
  try {
    return /^\d+[smhd]$/.test(text) ? new Date(Date.now() - seconds(text) * 1_000).toISOString() : time(text);
  } catch {
    throw new InvalidArgumentError('It must be a time, such as 2030-12-31T00:00:00Z, or how long ago, such as 15m.');
  }
}

const COLUMNS: readonly (readonly [title: string, cell: (request: RequestView) => string | undefined])[] = [
  ['at', ({ at }) => preciseTimeText(at)],
  ['status', ({ status = '-' }) => String(status)],
  ['outcome', outcomeOf],
  ['code', ({ code }) => code],
  ['ms', ({ status, durationMs }) => (status === undefined ? undefined : String(Math.round(durationMs)))],
  ['key', ({ keyId }) => keyId],
  ['name', ({ keyName }) => keyName],
  ['address', ({ address }) => address],
  ['request', ({ method, path }) => `${method} ${path}`],
  ['id', ({ requestId }) => requestId],
];

function outcomeOf({ status, outcome, decision }: RequestView): string {
  if (status === undefined) return 'in progress';
  return decision?.shadow === undefined ? outcome : 'shadow refusal';
}

function describeRequests(requests: readonly RequestView[], hasReasons: boolean): string {
  const columns: readonly Column<RequestView>[] = [
    ...COLUMNS,
    ['?more', ({ repeated }) => repeated || undefined],
    ['?note', ({ keyBan }) => banNote(keyBan)],
  ];
  const [first = '', ...lines] = table(requests, columns, paintStatus).split('\n');
  return [first, ...lines.flatMap((line, at) => [line, ...(hasReasons ? reasonsOf(requests[at]) : [])])].join('\n');
}

function paintStatus(text: string, column: string): string {
  if (column !== 'status' || !/^[45]/.test(text)) return text;
  return colour(text.startsWith('5') ? 'red' : 'yellow', text);
}

function reasonsOf({ reason, advice }: Partial<RequestView> = {}): string[] {
  const why = [reason, advice].filter((one) => one !== undefined).join(' ');
  return why === '' ? [] : [`    ${harmless(withTimeTexts(why))}`];
}

function describeRequest(request: RequestView): string {
  const { decision, gateway, status, code, keyId, keyName, repeated } = request;
  const buckets = decision?.buckets;
  const answer = code === undefined ? String(status) : `${status} ${code}`;
  return linesOf([
    ['request', `${request.method} ${request.path}`],
    ['id', request.requestId],
    ['at', preciseTimeText(request.at)],
    ['response', status === undefined ? 'in progress' : `${answer}, after ${milliseconds(request.durationMs)}`],
    ['outcome', status === undefined ? undefined : outcomeOf(request)],
    ['why', request.reason && withTimeTexts(request.reason)],
    ['what to do', request.advice],
    ['repeated', repeated > 0 ? `${repeated} more like it in the same minute` : undefined],
    ['key', keyName === undefined ? keyId : `${keyId} (${keyName})`],
    ['note', banNote(request.keyBan)],
    ['secret', request.secretId],
    ['address', request.address],
    ['plan', decision?.plan && `${decision.plan}, table version ${decision.planVersion ?? 'unknown'}`],
    ['refused by', decision?.refusedBy?.join(', ')],
    ['retry at', decision?.outcome === 'banned' ? atTime(decision.bannedUntil) : atTime(decision?.retryAt)],
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

const EVERY_MS = 1_000;
const MOST_CALLS = 5;
const MOST_REMEMBERED = 50_000;
/** A response may lack requests recorded less than this long before it. They appear in the next response. */
const BEFORE_MS = 10_000;

/** Prints requests as they complete. @param shownBefore how many earlier requests are printed first */
async function followRequests(
  session: Session,
  filters: Filters,
  shownBefore: number,
  hasReasons: boolean,
): Promise<never> {
  process.once('SIGINT', () => process.exit());
  const asJson = (request: RequestView) => session.write(`${JSON.stringify(request)}\n`);
  const write = session.isJson ? asJson : asLines(session, hasReasons);
  const printed = boundedMap<string, true>(MOST_REMEMBERED);
  /** When the requests in progress began. */
  let open = new Map<string, number>();
  let missing = '';

  /** Returns new requests, oldest first. */
  async function next(asked: Filters, isFirst: boolean): Promise<RequestView[]> {
    const found: RequestView[] = [];
    const [wanted, stillOpen] = [new Set(open.keys()), new Map<string, number>()];
    let [calls, isKnown] = [0, isFirst];
    for await (const page of session.parts<RequestsAnswer>('/requests', { ...asked, limit: String(MOST_A_CALL) })) {
      note(page.missing);
      for (const request of page.requests) {
        const id = identityOf(request);
        wanted.delete(id);
        if (printed.has(id)) isKnown = true;
        else if (request.status === undefined) stillOpen.set(id, Date.parse(request.at));
        else {
          printed.set(id, true);
          found.push(request);
        }
      }
      if (isKnown && wanted.size === 0) break;
      if (++calls < MOST_CALLS) continue;
      if (!isKnown && page.next !== undefined)
        session.printNote(
          `Note: more than ${MOST_CALLS * MOST_A_CALL} requests arrived at once, so some are left out.`,
        );
      break;
    }
    open = stillOpen;
    return found.toReversed();
  }

  /** Leaves out older requests, which have already been printed. The times are those of the gateways' clocks. */
  function since(): { from?: string } {
    if (newest === undefined) return {};
    const now = Date.parse(newest.at) + performance.now() - startedAt;
    const from = Math.max(Math.min(now - BEFORE_MS, ...open.values()), Date.parse(filters.from ?? '') || 0);
    return { from: new Date(from).toISOString() };
  }

  function note(silent: readonly string[]): void {
    const now = silent.join(', ');
    if (now !== missing) session.noteMissing(silent);
    missing = now;
  }

  const before = await next(filters, true);
  for (const request of before.slice(Math.max(0, before.length - shownBefore))) write(request);
  const startedAt = performance.now();
  let newest = before.at(-1) ?? (await session.get<RequestsAnswer>('/requests?limit=1')).requests[0];
  let isAway = false;
  for (;;) {
    await sleep(EVERY_MS);
    try {
      const found = await next({ ...filters, ...since() }, false);
      for (const request of found) write(request);
      newest ??= found.at(-1);
      isAway = false;
    } catch (fault) {
      // The gateway may be restarting, or the store may be unavailable for a while.
      if (!(fault instanceof AdminError && (fault.code === 'no_gateway' || fault.status === 503))) throw fault;
      if (!isAway) session.printNote(`Note: ${fault.message}`);
      isAway = true;
    }
  }
}

/** Clients choose the ids of requests, so several requests can have the same one. */
const identityOf = ({ requestId, at, gateway }: RequestView): string =>
  `${requestId} ${at} ${gateway.host} ${gateway.pid}`;

/** Columns only widen, because lines that are already printed cannot be realigned. */
function asLines(session: Session, hasReasons: boolean): (request: RequestView) => void {
  const titles = COLUMNS.map(([title]) => title);
  const widths: number[] = [];
  const line = (cells: readonly string[]) => {
    const padded = cells.map((cell, at) => {
      widths[at] = Math.max(widths[at] ?? 0, cell.length);
      return paintStatus(cell.padEnd(widths[at]), titles[at] ?? '');
    });
    session.write(`${padded.join('  ').trimEnd()}\n`);
  };
  return (request) => {
    const cells = COLUMNS.map(([, cell]) => harmless(cell(request) ?? '-'));
    if (widths.length === 0) {
      widths.push(cells[0]?.length ?? 0);
      line(titles);
    }
    line(cells);
    if (hasReasons) for (const reason of reasonsOf(request)) session.write(`${reason}\n`);
  };
}
