import { setTimeout as sleep } from 'node:timers/promises';
import { boundedMap } from '../../../shared/bounded-map.ts';
import type { RequestsAnswer, RequestView } from '../api/answers.ts';
import { AdminError } from './admin-client.ts';
import { cellsOf, HEAD, paintStatus, reasonsOf } from './request-text.ts';
import type { Session } from './session.ts';
import { harmless } from './table.ts';

/** Prints requests as they are answered. */

const EVERY_MS = 1_000;
const A_CALL = 200;
const MOST_CALLS = 5;
const MOST_REMEMBERED = 50_000;
/** A request that was recorded less than this before an answer may be missing from it, and appear in the next one. */
const BEFORE_MS = 10_000;

/** @param shownBefore how many earlier requests are printed first */
export async function followRequests(
  session: Session,
  filters: Record<string, string>,
  shownBefore: number,
  hasReasons: boolean,
): Promise<never> {
  process.once('SIGINT', () => process.exit());
  const write = session.isJson ? asJson(session) : asLines(session, hasReasons);
  const printed = boundedMap<string, true>(MOST_REMEMBERED);
  /** When the requests in progress began. */
  let open = new Map<string, number>();
  let missing = '';

  /** Returns new requests, the oldest first. */
  async function next(asked: Record<string, string>, isFirst: boolean): Promise<RequestView[]> {
    const found: RequestView[] = [];
    const [wanted, stillOpen] = [new Set(open.keys()), new Map<string, number>()];
    let [after, isKnown]: [string | undefined, boolean] = [undefined, isFirst];
    for (let calls = 0; calls < MOST_CALLS; calls++) {
      const query = new URLSearchParams({ ...asked, limit: String(A_CALL), ...(after !== undefined && { after }) });
      const page = await session.call<RequestsAnswer>('GET', `/requests?${query}`);
      note(page.missing.join(', '));
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
      after = page.next;
      if (after === undefined || (isKnown && wanted.size === 0)) break;
    }
    if (!isKnown && after !== undefined)
      session.tell(`Note: more than ${MOST_CALLS * A_CALL} requests arrived at once, so some are left out.`);
    open = stillOpen;
    return found.toReversed();
  }

  /** Older requests were answered before, and need not be read again. Times are those of the gateways' clocks. */
  function since(): { from?: string } {
    if (newest === undefined) return {};
    const now = Date.parse(newest.at) + performance.now() - startedAt;
    const from = Math.max(Math.min(now - BEFORE_MS, ...open.values()), Date.parse(filters.from ?? '') || 0);
    return { from: new Date(from).toISOString() };
  }

  function note(now: string): void {
    if (now !== missing && now !== '')
      session.tell(`Note: these do not answer, so their requests are missing: ${harmless(now)}.`);
    missing = now;
  }

  const before = await next(filters, true);
  for (const request of before.slice(Math.max(0, before.length - shownBefore))) write(request);
  const startedAt = performance.now();
  let newest = before.at(-1) ?? (await session.call<RequestsAnswer>('GET', '/requests?limit=1')).requests[0];
  let isAway = false;
  for (;;) {
    await sleep(EVERY_MS);
    try {
      const found = await next({ ...filters, ...since() }, false);
      for (const request of found) write(request);
      newest ??= found.at(-1);
      isAway = false;
    } catch (fault) {
      if (!(fault instanceof AdminError && fault.code === 'no_gateway')) throw fault;
      // The gateway may be restarting.
      if (!isAway) session.tell(`Note: ${fault.message}`);
      isAway = true;
    }
  }
}

/** Clients choose the ids of requests, so several requests can have the same one. */
const identityOf = ({ requestId, at, gateway }: RequestView): string =>
  `${requestId} ${at} ${gateway.host} ${gateway.pid}`;

const asJson = (session: Session) => (request: RequestView) => session.write(`${JSON.stringify(request)}\n`);

/** Columns grow with their content, because printed lines cannot be aligned again. */
function asLines(session: Session, hasReasons: boolean): (request: RequestView) => void {
  const widths: number[] = HEAD.map(({ length }) => length);
  const line = (cells: readonly string[]) => {
    const padded = cells.map((cell, at) => {
      widths[at] = Math.max(widths[at] ?? 0, cell.length);
      return paintStatus(cell.padEnd(widths[at]), HEAD[at] ?? '');
    });
    session.write(`${padded.join('  ').trimEnd()}\n`);
  };
  let isFirst = true;
  return (request) => {
    if (isFirst) widths[0] = String(cellsOf(request)[0]).length;
    if (isFirst) line(HEAD);
    isFirst = false;
    line(cellsOf(request).map((cell) => harmless(String(cell ?? '-'))));
    if (hasReasons) for (const reason of reasonsOf(request)) session.write(`${reason}\n`);
  };
}
