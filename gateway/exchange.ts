import type { IncomingMessage, ServerResponse } from 'node:http';
import type { HttpError } from '../shared/errors.ts';
import { requestIdOf } from '../shared/headers.ts';
import { type Trace, traceOf } from '../shared/trace.ts';
import { type Credential, redactApiKeys } from './access/credential.ts';
import type { Standing } from './access/verdict.ts';
import type { Share } from './admission.ts';
import type { GatewayRoute } from './routes.ts';
import type { Outcome } from './traffic/outcomes.ts';

/** nginx's number for a client that left before its answer was complete; never sent, so nobody is blamed for it. */
const CLIENT_CLOSED_REQUEST = 499;

const SWITCHING_PROTOCOLS = 101;

/** One request and its answer, and what is learned on the way: the only state that a request has. */
export class Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly id: string;
  readonly trace: Trace;
  /** The client's address. */
  readonly client: string;
  /** Whose allowance pays for what no key pays for: the client's address, or its network. */
  readonly address: string;
  readonly startedAt = performance.now();
  /** When the decision was there; of performance.now(), as startedAt. */
  decidedAt: number | undefined;

  /** The path, once it is known to be canonical; never the query. */
  path: string | undefined;
  route: GatewayRoute | undefined;
  /** The public part of a key that was presented, whether it opened anything or not. */
  keyId: string | undefined;
  /** What was presented, where it has the form of a key. It holds a digest: no log may have it. */
  credential: Credential | undefined;
  /** Whose share of the gateway's capacity it takes, while it does. */
  share: Share | undefined;
  plan: string | undefined;
  /** How the decision went, or why there was none. */
  outcome: Outcome | undefined;
  /** Set where the decision was not taken in Redis. */
  mode: 'local' | undefined;
  /** What would have been answered, had the plan of the key not been in shadow mode. */
  shadow: 'rate_limit_exceeded' | undefined;
  standing: Standing | undefined;
  /** On every answer, so that pages of other origins can read it. */
  cors: readonly string[] = [];
  /** Fields of the key that hold no usable limit. */
  rejectedOverrides: string | undefined;
  /** What went through a WebSocket, both ways in bytes, where one was opened. */
  tunnel: { readonly bytesFromClient: number; readonly bytesFromCore: number } | undefined;
  /** The error that was answered; what really happened is its cause. */
  error: HttpError | undefined;

  constructor(request: IncomingMessage, response: ServerResponse, client: string, address: string) {
    this.request = request;
    this.response = response;
    this.client = client;
    this.address = address;
    this.id = requestIdOf(request, (id) => redactApiKeys(id) === id);
    this.trace = traceOf(request);
  }

  /** What was answered; what was to be, where the client left before that. */
  get status(): number {
    if (this.tunnel !== undefined) return SWITCHING_PROTOCOLS;
    if (this.response.writableFinished) return this.response.statusCode;
    return this.error?.status ?? CLIENT_CLOSED_REQUEST;
  }
}
