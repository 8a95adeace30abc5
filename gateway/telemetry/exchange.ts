import type { IncomingMessage, ServerResponse } from 'node:http';
import type { HttpError } from '../../shared/http/errors.ts';
import { MAX_REQUEST_ID_LENGTH, requestIdOf, type Trace, traceOf } from '../../shared/http/request-head.ts';
import { whyCut } from '../../shared/http/server.ts';
import { MILLISECOND } from '../limiter/bucket.ts';
import type { Client } from '../limiter/client.ts';
import { type Credential, redactApiKeys } from '../limiter/credential.ts';
import { type Decision, type LimitStatus, later, StoreUnavailable, type Verdict } from '../limiter/limiter.ts';
import type { PlanName } from '../limiter/plans.ts';
import type { GatewayRoute } from '../routes.ts';

/** nginx's status for a client that disconnected before its response was complete. It is never sent. */
const CLIENT_CLOSED_REQUEST = 499;

const SWITCHING_PROTOCOLS = 101;

/**
 * The single form in which a request is checked, decided and forwarded. Node's parser accepts requests that another
 * parser may read differently (RFC 9112 §11.2). Such a request has no canonical form and is refused before anything
 * else.
 */
export interface CanonicalRequest {
  readonly method: string;
  readonly path: string;
  /** Path and query exactly as received. They are forwarded unchanged. */
  readonly target: string;
  readonly host: string;
  readonly authorization: string | undefined;
  readonly hasBody: boolean;
}

/** The other end of a connection: a client, or a proxy. */
export interface Peer {
  readonly address: string;
  readonly network: string;
  /** Whether its X-Forwarded-* headers are trusted. */
  readonly isTrusted: boolean;
}

/**
 * One request and everything known about it. Each step adds to it; limit headers, log line and metrics derive from it.
 */
export class Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly clientAddress: string;
  readonly peer: Peer;
  /** The client's IPv4 address or IPv6 /64. Its allowance pays for a request without a valid key. */
  readonly network: string;
  /** CORS headers of the response, so that pages from other origins can read it. */
  readonly cors: readonly string[];
  readonly id: string;
  readonly trace: Trace;
  /** When the request began. All times here are from performance.now(). */
  readonly startedAt = performance.now();

  canonical: CanonicalRequest | undefined;
  /** Which of the gateway's own responses the request gets. Such requests have no decision. */
  ownAnswer: 'reference' | 'own' | undefined;
  /** The presented credential, if well-formed. It may be invalid. It contains a digest, so it must not be logged. */
  credential: Credential | undefined;
  /** The record of the key, if the key is valid. */
  client: Client | undefined;
  verdict: Verdict | undefined;
  decidedAt: number | undefined;
  /** Whether a decision has been requested and not received. */
  isBeingDecided = false;
  /** The limit status of the key if there is no decision: the request asked for the status, or could not be decided. */
  keyStatus: Decision | undefined;
  addressStatus: LimitStatus | undefined;
  /** The ban on the key, if the ban began while the body of the admitted request was still arriving. */
  laterBan: Decision | undefined;
  route: GatewayRoute | undefined;
  /** When the request was sent to the core, and when the core began to answer. */
  sentAt: number | undefined;
  answeredAt: number | undefined;
  /** When the response was complete or the client had disconnected. 0 before that. */
  endedAt = 0;
  /** Whether log, metrics and recent requests have it. */
  isObserved = false;
  /** The code with which the core refused the request, if it is one of ours. */
  coreCode: string | undefined;
  tunnel:
    | { readonly bytesFromClient: number; readonly bytesFromCore: number; readonly closedBecause: string | undefined }
    | undefined;
  /** The error in the response. Its cause is the original fault. */
  error: HttpError | undefined;
  /** Headers that are known only when the response begins. */
  lateHeaders: (() => readonly string[]) | undefined;
  /** The record of the request for operators. */
  noted: NotedRequest | undefined;
  notedPlace = 0;

  constructor(
    request: IncomingMessage,
    response: ServerResponse,
    clientAddress: string,
    peer: Peer,
    network: string,
    cors: readonly string[],
  ) {
    this.request = request;
    this.response = response;
    this.clientAddress = clientAddress;
    this.peer = peer;
    this.network = network;
    this.cors = cors;
    this.id = requestIdOf(request, (id) => id.length <= MAX_REQUEST_ID_LENGTH && redactApiKeys(id) === id);
    this.trace = traceOf(request);
  }

  /** The decision on the key, if the key is valid. */
  get decision(): Decision | undefined {
    const { verdict } = this;
    return verdict === undefined || verdict.outcome === 'unauthorized' || verdict.outcome === 'undecided'
      ? undefined
      : verdict;
  }

  /** The limit status that the response reports: the key's, otherwise the address's. */
  get limitStatus(): LimitStatus | undefined {
    return this.laterBan ?? this.decision ?? this.keyStatus ?? this.addressStatus;
  }

  /** Updates the limit status after the response was delayed for this many milliseconds. */
  heldFor(ms: number): void {
    const elapsed = Math.round(ms * MILLISECOND);
    if (this.decision !== undefined) this.verdict = later(this.decision, elapsed);
    if (this.addressStatus !== undefined) this.addressStatus = later(this.addressStatus, elapsed);
  }

  get keyId(): string | undefined {
    return this.credential?.id;
  }

  get plan(): PlanName | undefined {
    return (this.decision ?? this.keyStatus)?.plan;
  }

  /** The outcome of the decision, or why there was none. */
  get outcome(): Outcome {
    const { verdict, error } = this;
    // A request can be shed even after its decision, if no capacity was left when its body arrived.
    if (error?.cause instanceof Shed) return 'shed';
    if (verdict === undefined) return this.#noDecisionReason;
    if (verdict.outcome === 'undecided') return 'unusable';
    return verdict.outcome === 'unauthorized' ? verdict.reason : verdict.outcome;
  }

  get #noDecisionReason(): NoDecisionReason {
    const { error, ownAnswer } = this;
    if (ownAnswer === 'reference') return 'reference';
    if (error === undefined) return ownAnswer ?? 'left';
    if (error.cause instanceof StoreUnavailable) return 'unavailable';
    return error.status < 500 || error.code === 'http_version_not_supported' ? 'invalid' : 'failed';
  }

  /** 'local' if the decision was not made in Redis. */
  get mode(): 'local' | undefined {
    const { verdict } = this;
    return verdict !== undefined && verdict.outcome !== 'undecided' && verdict.mode === 'local' ? 'local' : undefined;
  }

  /** Why the gateway cut the connection before the response was complete or closed the WebSocket, if it did. */
  get cutBecause(): string | undefined {
    if (this.tunnel !== undefined) return this.tunnel.closedBecause;
    return this.status === CLIENT_CLOSED_REQUEST ? whyCut(this.response) : undefined;
  }

  /**
   * The status of the response. If the client disconnected first, the status of the error it would have received, or
   * 499.
   */
  get status(): number {
    if (this.tunnel !== undefined) return SWITCHING_PROTOCOLS;
    if (this.response.writableFinished) return this.response.statusCode;
    return this.error?.status ?? CLIENT_CLOSED_REQUEST;
  }
}

/** When each part of a request ended, by performance.now(); 0 or undefined for a part that was not reached. */
interface Moments {
  readonly startedAt: number;
  readonly decidedAt?: number | undefined;
  readonly sentAt?: number | undefined;
  readonly answeredAt?: number | undefined;
  readonly endedAt?: number | undefined;
}

/** The duration of each part in ms; undefined for a part that was not reached. */
interface Times {
  /** Until the decision. */
  readonly decision: number | undefined;
  /**
   * From the decision until the request, with its body, was sent to the core or, if it never was, until it ended.
   */
  readonly waiting: number | undefined;
  /** Until the core began to respond. */
  readonly core: number | undefined;
  /** Until the response was complete or cut off. */
  readonly sending: number | undefined;
}

export const timesOf = ({ startedAt, decidedAt, sentAt, answeredAt, endedAt }: Moments): Times => ({
  decision: between(startedAt, decidedAt),
  waiting: between(decidedAt, sentAt || endedAt),
  core: between(sentAt, answeredAt),
  sending: between(answeredAt, endedAt),
});

const between = (from = 0, to = 0): number | undefined => (from === 0 || to === 0 ? undefined : Math.max(0, to - from));

/** The kinds of requests that are kept: served ones, refused ones, and those without a valid key. */
export type Kind = 'served' | 'refused' | 'strangers';

/** The record of one request. */
export class NotedRequest {
  /** The request's sequence number, from 1, among all that this process has recorded; 0 if the slot is empty. */
  place = 0;
  /** The last `place` of the slot, kept when the slot is emptied. */
  order = 0;
  /** When it was recorded: a Unix time in ms that never decreases from one record to the next. */
  recordedAt = 0;
  readonly kind: Kind;
  requestId = '';
  /** When it arrived: Unix time in ms, on this machine's clock. */
  at = 0;
  method = '';
  path = '';
  address = '';
  keyId: string | undefined;
  digest: string | undefined;
  verdict: Verdict | undefined;
  planVersion: string | undefined;
  outcome: Outcome = 'left';
  /** 0 until the request is answered. */
  status = 0;
  code: string | undefined;
  fault: string | undefined;
  startedAt = 0;
  decidedAt = 0;
  sentAt = 0;
  answeredAt = 0;
  /** 0 until the request is answered. */
  endedAt = 0;
  /**
   * For a request that a limit or a ban refused: when requests are allowed again, in Unix microseconds. 0 for any other
   * request.
   */
  retryAt = 0;
  /** How many similar requests followed in the same minute and were not kept. */
  repeated = 0;

  constructor(kind: Kind) {
    this.kind = kind;
  }
}

/** The cause of a 503 from load shedding. */
export class Shed extends Error {
  constructor() {
    super('Too many requests are in progress: clients send too many, or cores are slow or hang.');
  }
}

/** The outcomes of a request before it is forwarded: a decision, or why there was none. Each is a label value. */

/** Decisions on a key that has a plan. `forbidden` means that its secret lacks the scope. */
export const ON_PLANS = ['admitted', 'refused_minute', 'refused_day', 'banned', 'forbidden'] as const;

/** Decisions on an invalid key. `elsewhere` means that its secret is bound to other networks. */
export const ON_NO_PLAN = ['unknown', 'disabled', 'expired', 'elsewhere'] as const;

export const DECISION_OUTCOMES = [...ON_PLANS, ...ON_NO_PLAN] as const;
export type DecisionOutcome = (typeof DECISION_OUTCOMES)[number];

/**
 * Why there was no decision.
 * - `malformed`: the key is missing or malformed
 * - `shed`: the gateway is overloaded
 * - `unavailable`: Redis is unavailable, and this gateway cannot decide on the key
 * - `unusable`: the key's data is corrupt
 * - `reference`: the file needs no key
 * - `own`: the gateway answers by itself, for example with a key's limit status
 * - `invalid`: the request itself was refused
 * - `failed`: the gateway failed
 * - `left`: the client disconnected first
 */
export const NO_DECISION_REASONS = [
  'malformed',
  'shed',
  'unavailable',
  'unusable',
  'reference',
  'own',
  'invalid',
  'failed',
  'left',
] as const;
export type NoDecisionReason = (typeof NO_DECISION_REASONS)[number];

/** The outcome of a request in the log. Its decision shows which limit refused it. */
export type Outcome = 'admitted' | 'refused' | 'banned' | 'forbidden' | (typeof ON_NO_PLAN)[number] | NoDecisionReason;

const REASONS: ReadonlySet<string> = new Set(NO_DECISION_REASONS);

export const isNoDecision = (outcome: Outcome): outcome is NoDecisionReason => REASONS.has(outcome);
