import type { IncomingMessage, ServerResponse } from 'node:http';
import type { HttpError } from '../../shared/errors.ts';
import { requestIdOf } from '../../shared/headers.ts';
import { type Trace, traceOf } from '../../shared/trace.ts';
import { type Credential, redactApiKeys } from '../access/credential.ts';
import { AccessUnavailable } from '../access/limiter.ts';
import type { PlanName } from '../access/plans.ts';
import type { Decision, LimitStatus, Verdict } from '../access/verdict.ts';
import type { GatewayRoute } from '../routes.ts';
import type { NoDecisionReason, Outcome } from '../telemetry/outcomes.ts';
import type { CanonicalRequest } from './canonical-request.ts';
import { Shed } from './load-shedder.ts';

/** nginx's number for a client that left before its answer was complete. It is never sent. */
const CLIENT_CLOSED_REQUEST = 499;

const SWITCHING_PROTOCOLS = 101;

/** What came with a request, before anything is known of it. */
export interface Arrival {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** The client's address. */
  readonly client: string;
  /** Whose allowance pays for what no key pays for: the client's address, or its network. */
  readonly address: string;
  /** CORS headers of its answer, so that pages of other origins can read it. */
  readonly cors: readonly string[];
}

/**
 * One request and what has been learned of it. The pipeline writes each fact once, in the order in which they stand here.
 * The limit headers, the log line and the metrics are derived from the facts.
 */
export class Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly client: string;
  readonly address: string;
  readonly cors: readonly string[];
  readonly id: string;
  readonly trace: Trace;
  /** Of performance.now(), as all times here. */
  readonly startedAt = performance.now();

  canonical: CanonicalRequest | undefined;
  /** What the gateway answers itself. Nothing is decided on it. */
  ownAnswer: 'reference' | 'own' | undefined;
  /** What was presented, where it has the form of a key, whether it opens anything or not. It holds a digest: no log may have it. */
  credential: Credential | undefined;
  verdict: Verdict | undefined;
  decidedAt: number | undefined;
  /** Where the key stands, when it asked for that. */
  keyStatus: Decision | undefined;
  /** Where the address stands, when it pays. */
  addressStatus: LimitStatus | undefined;
  route: GatewayRoute | undefined;
  /** What went through a WebSocket, both ways in bytes, where one was opened. */
  tunnel: { readonly bytesFromClient: number; readonly bytesFromCore: number } | undefined;
  /** The error that was answered. What really happened is its cause. */
  error: HttpError | undefined;

  constructor({ request, response, client, address, cors }: Arrival) {
    this.request = request;
    this.response = response;
    this.client = client;
    this.address = address;
    this.cors = cors;
    this.id = requestIdOf(request, (id) => redactApiKeys(id) === id);
    this.trace = traceOf(request);
  }

  /** The decision on its key, where the key is one. */
  get decision(): Decision | undefined {
    const { verdict } = this;
    return verdict === undefined || verdict.outcome === 'unauthorized' || verdict.outcome === 'undecided'
      ? undefined
      : verdict;
  }

  /** What its answer tells of limits: where the key stands, else where the address does. */
  get limitStatus(): LimitStatus | undefined {
    return this.decision ?? this.keyStatus ?? this.addressStatus;
  }

  /** The public part of the key. */
  get keyId(): string | undefined {
    return this.credential?.id;
  }

  get plan(): PlanName | undefined {
    return (this.decision ?? this.keyStatus)?.plan;
  }

  /** How the decision went, or why there was none. */
  get outcome(): Outcome {
    const { verdict } = this;
    if (verdict === undefined) return this.#noDecisionReason;
    if (verdict.outcome === 'undecided') return 'unusable';
    return verdict.outcome === 'unauthorized' ? verdict.reason : verdict.outcome;
  }

  get #noDecisionReason(): NoDecisionReason {
    const { error, ownAnswer } = this;
    if (ownAnswer === 'reference') return 'reference';
    if (error === undefined) return ownAnswer ?? 'left';
    if (error.cause instanceof Shed) return 'shed';
    if (error.cause instanceof AccessUnavailable) return 'unavailable';
    return error.status < 500 ? 'invalid' : 'failed';
  }

  /** Set where the decision was not taken in Redis. */
  get mode(): 'local' | undefined {
    const { verdict } = this;
    return verdict !== undefined && verdict.outcome !== 'undecided' && verdict.mode === 'local' ? 'local' : undefined;
  }

  /** What was answered; what was to be answered, where the client left before that. */
  get status(): number {
    if (this.tunnel !== undefined) return SWITCHING_PROTOCOLS;
    if (this.response.writableFinished) return this.response.statusCode;
    return this.error?.status ?? CLIENT_CLOSED_REQUEST;
  }
}
