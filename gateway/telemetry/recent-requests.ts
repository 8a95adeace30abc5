import { setImmediate as nextTurn } from 'node:timers/promises';
import { z } from 'zod';
import { boundedMap } from '../../shared/bounded-map.ts';
import { roundedMs } from '../../shared/http/service.ts';
import { count, time } from '../../shared/schemas/answer-parts.ts';
import { SECOND } from '../limiter/bucket.ts';
import type { LimitStatus, Verdict } from '../limiter/limiter.ts';
import {
  DecisionReport,
  describeDecision,
  GatewayProcess,
  HOST,
  isOfAKey,
  MOST_DECISIONS,
  toTime,
} from './decision-report.ts';
import { type Exchange, type Kind, NotedRequest, timesOf } from './exchange.ts';

/**
 * Keeps the last requests of this process, so that operators can look them up. Recording one takes a few assignments
 * into a reused slot; a report is only made on demand.
 */

/** How the slots are divided between kinds of requests. */
const SHARES: Readonly<Record<Kind, number>> = { served: 0.5, refused: 0.3, strangers: 0.2 };

/**
 * Refusals of one key or address with the same outcome, status and code may take this share of the slots of their kind
 * per minute, and at least LEAST_OF_ONE slots. Further refusals are only counted.
 */
const SHARE_OF_ONE = 0.02;
const LEAST_OF_ONE = 5;
const MAX_REFUSED = 10_000;
const MINUTE_MS = 60_000;
/** The number of requests searched before other work gets a turn: about a millisecond. */
const SEARCHED_AT_ONCE = 250;
const FIRST_FAILURE = 400;
const TOO_MANY = 429;

/** A part of a longer string is copied before it is kept, because it would otherwise keep the whole string alive. */
const KEPT_WHOLE = 256;
const ownText = (part: string, whole = ''): string =>
  whole.length > KEPT_WHOLE ? Buffer.from(part, 'latin1').toString('latin1') : part;

export class RecentRequests {
  readonly #rings: Readonly<Record<Kind, Ring>>;
  readonly #plans: { readonly version: string | undefined };
  readonly #redact: (text: string) => string;
  readonly #refusals = boundedMap<string, { minute: number; count: number; last: NotedRequest; place: number }>(
    MAX_REFUSED,
  );
  #places = 0;
  #recordedAt = 0;

  /**
   * @param kept the number of requests to keep; half of them are served ones
   * @param plans provides the current version of the plans
   * @param redact removes secrets from a path
   */
  constructor(kept: number, plans: { readonly version: string | undefined }, redact = (text: string) => text) {
    const ringOf = (kind: Kind) => new Ring(Math.max(1, Math.floor(kept * SHARES[kind])), kind);
    this.#rings = { served: ringOf('served'), refused: ringOf('refused'), strangers: ringOf('strangers') };
    this.#plans = plans;
    this.#redact = redact;
  }

  /** Must be called after the decision on a request, so that an admitted one can be found before its response ends. */
  decided(seen: Exchange): void {
    if (seen.verdict?.outcome === 'admitted') this.#note(seen, 'served');
  }

  /**
   * Must be called when the response has ended or the client has disconnected. A failure is kept longer than a success.
   */
  ended(seen: Exchange): void {
    const { noted, notedPlace, verdict, status } = seen;
    const isServed = status < FIRST_FAILURE && (verdict === undefined || verdict.outcome === 'admitted');
    let slot = noted?.place === notedPlace ? noted : undefined;
    if (slot !== undefined && !isServed) this.#rings.served.giveBack(slot);
    if (!isServed) slot = this.#noteRefusal(seen, verdict !== undefined && isOfAKey(verdict) ? 'refused' : 'strangers');
    else slot ??= this.#note(seen, 'served');
    if (slot !== undefined) this.#finish(slot, seen);
  }

  /**
   * @returns undefined if the refusal is only counted, together with an earlier one of the same outcome, status and
   *   code
   */
  #noteRefusal(seen: Exchange, kind: Kind): NotedRequest | undefined {
    const who = kind === 'refused' ? seen.keyId : seen.network;
    const alike = `${who} ${seen.outcome} ${seen.status} ${seen.error?.code ?? seen.coreCode}`;
    const minute = Math.floor(Date.now() / MINUTE_MS);
    const before = this.#refusals.get(alike);
    const isMany =
      before?.minute === minute && before.count >= Math.max(LEAST_OF_ONE, this.#rings[kind].size * SHARE_OF_ONE);
    // If the slot of the last recorded refusal was reused, its place has changed.
    if (isMany && before.last.place === before.place) {
      before.last.repeated += 1;
      return undefined;
    }
    const last = this.#note(seen, kind);
    const { place } = last;
    if (before?.minute === minute) Object.assign(before, { count: before.count + 1, last, place });
    else this.#refusals.set(alike, { minute, count: 1, last, place });
    return last;
  }

  #note(seen: Exchange, kind: Kind): NotedRequest {
    const slot = this.#rings[kind].next();
    slot.place = slot.order = ++this.#places;
    const now = Date.now();
    slot.recordedAt = this.#recordedAt = Math.max(this.#recordedAt, now);
    seen.noted = slot;
    seen.notedPlace = slot.place;
    slot.requestId = seen.id;
    slot.startedAt = seen.startedAt;
    slot.at = now - ((seen.endedAt || (seen.decidedAt ?? performance.now())) - seen.startedAt);
    slot.method = seen.request.method ?? '';
    slot.path = ownText(this.#redact(seen.canonical?.path ?? '').slice(0, 1_024), seen.request.url);
    slot.address = seen.clientAddress;
    slot.keyId = seen.keyId;
    slot.digest = seen.credential?.digest;
    slot.verdict = seen.verdict;
    slot.planVersion = this.#plans.version;
    slot.outcome = seen.outcome;
    slot.status = 0;
    slot.code = undefined;
    slot.fault = undefined;
    slot.decidedAt = slot.sentAt = slot.answeredAt = slot.endedAt = 0;
    slot.repeated = 0;
    return slot;
  }

  #finish(slot: NotedRequest, seen: Exchange): void {
    const { error } = seen;
    slot.outcome = seen.outcome;
    slot.status = seen.status;
    slot.code = error?.code ?? seen.coreCode;
    slot.fault = error === undefined ? seen.cutBecause : faultOf(error);
    slot.decidedAt = seen.decidedAt ?? 0;
    slot.sentAt = seen.sentAt ?? 0;
    slot.answeredAt = seen.answeredAt ?? 0;
    slot.endedAt = seen.endedAt;
    slot.retryAt = slot.status === TOO_MANY ? retryAtOf(seen.limitStatus) : 0;
  }

  /** Finds the requests that match, newest first. */
  async find(query: RequestQuery): Promise<RequestReport[]> {
    const found: RequestReport[] = [];
    const byBan = new Map<string, { report: RequestReport; refused: number; banBeganAt?: string | undefined }>();
    let looked = 0;
    for (const slot of this.#newestFirst()) {
      if (++looked % SEARCHED_AT_ONCE === 0) await nextTurn();
      if (!matches(slot, query)) continue;
      const report = reportOf(slot);
      if (query.bansOf === undefined) {
        found.push(report);
        if (found.length === query.limit) break;
      } else {
        const minute = query.isByMinute ? Math.floor(slot.at / MINUTE_MS) : '';
        const ban = `${slot.keyId} ${report.decision?.bannedUntil} ${minute}`;
        const seen = byBan.get(ban) ?? { report, refused: 0 };
        const refused = seen.refused + 1 + slot.repeated;
        byBan.set(ban, { ...seen, refused, ...(beganBan(decisionIn(slot)) && { banBeganAt: report.at }) });
      }
    }
    for (const { report, refused, banBeganAt } of byBan.values())
      found.push({ ...report, repeated: refused - 1, banBeganAt });
    return found;
  }

  /**
   * For a query for bans: from when on no matching request was overwritten, in Unix ms. An entry counts the refusals of
   * up to a minute, so that of the oldest entry may be incomplete.
   */
  keptSince({ bansOf }: RequestQuery): number {
    const oldest = bansOf && this.#rings.refused.oldest;
    return oldest === undefined ? 0 : (Math.floor(oldest.recordedAt / MINUTE_MS) + 1) * MINUTE_MS;
  }

  /** Leaves out slots that are reused or emptied in the meantime. */
  *#newestFirst(): Generator<NotedRequest> {
    const last = this.#places;
    const rings = Object.values(this.#rings).map((ring) => ring.newestFirst());
    const heads = rings.map((ring) => ring.next().value);
    for (;;) {
      let newest = -1;
      for (let at = 0; at < heads.length; at++) if ((heads[at]?.order ?? 0) > (heads[newest]?.order ?? 0)) newest = at;
      const head = heads[newest];
      if (head === undefined) return;
      if (head.place > 0 && head.order <= last) yield head;
      heads[newest] = rings[newest]?.next().value;
    }
  }
}

/** A fixed number of slots that are reused in turn. A slot is created when it is first used. */
class Ring {
  readonly #slots: NotedRequest[] = [];
  readonly size: number;
  readonly #kind: Kind;
  #next = 0;

  constructor(size: number, kind: Kind) {
    this.size = size;
    this.#kind = kind;
  }

  /** The slot that is reused next; undefined while there are unused ones. */
  get oldest(): NotedRequest | undefined {
    return this.#slots[this.#next];
  }

  next(): NotedRequest {
    const slot = this.#slots[this.#next] ?? new NotedRequest(this.#kind);
    this.#slots[this.#next] = slot;
    this.#next = (this.#next + 1) % this.size;
    return slot;
  }

  /** Empties a slot and makes it the next one to be used. Slots that were used after it move up. */
  giveBack(slot: NotedRequest): void {
    slot.place = 0;
    const newest = (this.#next - 1 + this.size) % this.size;
    let carried = slot;
    for (let at = newest; ; at = (at - 1 + this.size) % this.size) {
      const found = this.#slots[at] as NotedRequest;
      this.#slots[at] = carried;
      if (found === slot) break;
      carried = found;
    }
    this.#next = newest;
  }

  /** The ring may change between two steps, so slots that were already returned are skipped. */
  *newestFirst(): Generator<NotedRequest, undefined> {
    const newest = this.#next - 1 + this.size;
    let passed = Number.POSITIVE_INFINITY;
    for (let back = 0; back < this.size; back++) {
      const slot = this.#slots[(newest - back) % this.size];
      if (slot === undefined) return;
      if (slot.order >= passed) continue;
      passed = slot.order;
      yield slot;
    }
  }
}

/** Search criteria. Undefined matches anything. Times are Unix times in ms. A query can come from another gateway. */
export const RequestQuery = z.object({
  keyId: z.string().optional(),
  requestId: z.string().optional(),
  /** Only requests with a decision of one of these outcomes. */
  outcomes: z.array(z.string()).optional(),
  /** Whether to return only requests with a decision on an existing key. */
  isDecided: z.boolean().optional(),
  /** A status, or its first digit. */
  status: z.int().optional(),
  code: z.string().optional(),
  /** A part of the request's id, path, address, key id, code or outcome, in lower case. */
  text: z.string().optional(),
  from: z.number().optional(),
  to: z.number().optional(),
  /** Continues a list after the report with this `cursor`. */
  after: z.string().optional(),
  limit: z.int().min(1).max(MOST_DECISIONS),
  /**
   * Only requests with these keys that a ban refused. For each ban only the newest is reported, and `repeated` counts
   * all others. Each process reports its own, and `limit` is ignored.
   */
  bansOf: z.array(z.string()).optional(),
  /** Whether the newest request of each minute is reported instead. */
  isByMinute: z.boolean().optional(),
});
export type RequestQuery = z.infer<typeof RequestQuery>;

const milliseconds = z.number().optional();

/** A report on a request, which can be sent to another process. */
export const RequestReport = z.object({
  /** Sorts the reports of several processes by the time of recording. */
  cursor: z.string(),
  /** The digest of the presented secret. It must not leave the gateway. */
  digest: z.string().optional(),
  fault: z.string().optional(),
  /** When the ban began, if the query was for bans and a request that this process decided began it. */
  banBeganAt: time.optional(),
  at: time,
  requestId: z.string(),
  keyId: z.string().optional(),
  method: z.string(),
  path: z.string(),
  /** Undefined until the request is answered. */
  status: count.optional(),
  code: z.string().optional(),
  durationMs: z.number(),
  /**
   * How long each part took; undefined for a part that was not reached. `decision` ends with the decision. `waiting`
   * lasts until the request is sent to the core or, if it is not, until its end. `core` ends when the core begins to
   * respond, and `sending` when the response has been handed over.
   */
  times: z.object({ decision: milliseconds, waiting: milliseconds, core: milliseconds, sending: milliseconds }),
  address: z.string(),
  outcome: z.string(),
  /** When requests with the key or from the address are accepted again, if a limit or a ban refused this one. */
  retryAt: time.optional(),
  repeated: count,
  /** The decision, if there was one on a valid key. */
  decision: DecisionReport.optional(),
  gateway: GatewayProcess,
});
export type RequestReport = z.infer<typeof RequestReport>;

/** Requests that were found, and the processes that did not answer. */
export interface FoundRequests {
  readonly requests: readonly RequestReport[];
  readonly missing: readonly string[];
  /**
   * The latest start (Unix time in ms) of a process that answered. Its predecessor's requests are lost. For a query for
   * bans, no earlier than `keptSince` of each process.
   */
  readonly since: number;
}

function matches(slot: NotedRequest, query: RequestQuery): boolean {
  const { keyId, requestId, outcomes, isDecided, status, code, text, from, to, after, bansOf } = query;
  if (bansOf !== undefined && !(slot.outcome === 'banned' && bansOf.includes(slot.keyId ?? ''))) return false;
  if (isDecided && decisionIn(slot) === undefined) return false;
  if (keyId !== undefined && slot.keyId !== keyId) return false;
  if (outcomes !== undefined && !(slot.kind === 'refused' && outcomes.includes(slot.outcome))) return false;
  if (requestId !== undefined && slot.requestId !== requestId) return false;
  if (status !== undefined && slot.status !== status && Math.floor(slot.status / 100) !== status) return false;
  if (code !== undefined && slot.code !== code) return false;
  if (from !== undefined && slot.at < from) return false;
  if (to !== undefined && slot.at >= to) return false;
  if (after !== undefined && cursorOf(slot) >= after) return false;
  return text === undefined || textOf(slot).includes(text);
}

/** A ban ends a whole number of seconds after the decision that began it, exact to the microsecond. */
const beganBan = (verdict: Verdict | undefined): boolean =>
  verdict?.outcome === 'banned' && (verdict.bannedUntil - verdict.now) % SECOND === 0;

const textOf = ({ requestId, path, address, keyId = '', code = '', outcome }: NotedRequest): string =>
  `${requestId} ${path} ${address} ${keyId} ${code} ${outcome}`.toLowerCase();

const PID = String(process.pid).padStart(10, '0');
const cursorOf = ({ recordedAt, order }: NotedRequest): string =>
  `${String(recordedAt).padStart(15, '0')}-${PID}-${String(order).padStart(12, '0')}`;

export const REQUEST_CURSOR = /^\d{15}-\d{10}-\d{12}$/;

/** Merges the results of several processes. */
export function mergeFound(found: readonly FoundRequests[], { limit, bansOf }: RequestQuery): FoundRequests {
  const requests = found
    .flatMap((one) => one.requests)
    .sort(({ cursor: a }, { cursor: b }) => (a < b ? 1 : a > b ? -1 : 0));
  const missing = found.flatMap((one) => one.missing);
  const since = Math.max(0, ...found.map((one) => one.since));
  return { requests: bansOf === undefined ? requests.slice(0, limit) : requests, missing, since };
}

function reportOf(slot: NotedRequest): RequestReport {
  const { requestId, keyId, digest, method, path, status, code, fault, address, outcome, retryAt, repeated } = slot;
  const verdict = decisionIn(slot);
  return {
    cursor: cursorOf(slot),
    at: new Date(slot.at).toISOString(),
    ...{ requestId, keyId, digest, method, path, code, fault, address, outcome, repeated },
    status: status === 0 ? undefined : status,
    retryAt: retryAt === 0 ? undefined : toTime(retryAt),
    durationMs: slot.endedAt === 0 ? 0 : roundedMs(slot.endedAt - slot.startedAt),
    times: Object.fromEntries(Object.entries(timesOf(slot)).map(([part, ms]) => [part, ms && roundedMs(ms)])),
    decision: verdict && describeDecision(slot, verdict),
    gateway: { host: HOST, pid: process.pid },
  };
}

/** The decision, if it was on an existing key. */
const decisionIn = ({ kind, verdict }: NotedRequest): Verdict | undefined =>
  kind === 'strangers' ? undefined : verdict;

function retryAtOf(status: LimitStatus | undefined): number {
  if (status?.outcome === 'banned') return status.bannedUntil;
  return (status?.outcome === 'refused' && status.retryAt) || 0;
}

/** The message of an error, followed by that of its cause. */
function faultOf({ message, cause }: { readonly message: string; readonly cause?: unknown }): string {
  return cause instanceof Error && cause.message !== '' ? `${message} ${cause.message}` : message;
}
