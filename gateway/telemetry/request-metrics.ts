import { logRequest, MAX_LOGGED_PATH, roundedMs } from '../../shared/http/service.ts';
import { Counter, type Family, Histogram, Label, positionOfStatus, statusLabel } from '../../shared/process/counts.ts';
import type { Logger } from '../../shared/process/logger.ts';
import { redactApiKeys } from '../limiter/credential.ts';
import { PLAN_NAMES } from '../limiter/plans.ts';
import {
  DECISION_OUTCOMES,
  type DecisionOutcome,
  type Exchange,
  isNoDecision,
  NO_DECISION_REASONS,
  type NoDecisionReason,
  ON_NO_PLAN,
  ON_PLANS,
  type Outcome,
} from './exchange.ts';

/**
 * Counts requests and their outcomes. Each response increments a few numbers in place. Labels have only the values
 * listed here, so that they never contain a key, path or address.
 */

const MODES = ['shared', 'local'] as const;

/** The label value for no plan or no operation. */
export const NONE = 'none';

/** Names of metrics that other files read. */
export const DECISIONS = 'gateway_decisions_total';
export const WITHOUT_DECISION = 'gateway_requests_without_decision_total';
export const REQUESTS = 'gateway_requests_total';
export const REQUEST_DURATION = 'gateway_request_duration_seconds';

export const CLIENT_ADDRESSES = 'gateway_client_addresses_total';

/** `ignored` means that the peer named a client but is not trusted. */
const SOURCES = ['peer', 'proxy', 'ignored'] as const;
export type Source = (typeof SOURCES)[number];

const NETWORKS = ['public', 'private', 'loopback'] as const;
export type Network = (typeof NETWORKS)[number];

const LOOPBACK = /^(?:127\.|::1$)/;
/** RFC 1918, RFC 6598, RFC 3927, RFC 4193 and RFC 4291 define these. */
const PRIVATE =
  /^(?:10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|100\.(?:6[4-9]|[7-9]\d|1[01]\d|12[0-7])\.|169\.254\.|f[cd]|fe[89ab])/i;

const REQUEST_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
const DECISION_SECONDS = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25];

export class Traffic {
  readonly #operation: Label;
  readonly #plan = new Label('plan', [NONE, ...PLAN_NAMES]);
  readonly #outcome = new Label('outcome', DECISION_OUTCOMES);
  readonly #reason = new Label('reason', NO_DECISION_REASONS);
  readonly #mode = new Label('mode', MODES);
  readonly #source = new Label('source', SOURCES);
  readonly #network = new Label('network', NETWORKS);
  readonly #requests: Counter;
  readonly #requestSeconds: Histogram;
  readonly #decisions = new Counter(
    { name: DECISIONS, help: 'Decisions, by outcome, plan and mode (made by Redis or locally).' },
    this.#outcome,
    this.#plan,
    this.#mode,
  );
  readonly #withoutDecision = new Counter(
    { name: WITHOUT_DECISION, help: 'Requests answered without a decision, by reason.' },
    this.#reason,
  );
  readonly #shadowRefusals = new Counter(
    {
      name: 'gateway_shadow_refusals_total',
      help: 'Requests over a limit that were admitted because their plan is in shadow mode, by plan.',
    },
    this.#plan,
  );
  readonly #origins = new Counter(
    { name: CLIENT_ADDRESSES, help: 'Requests, by the source and the kind of the client address.' },
    this.#source,
    this.#network,
  );
  readonly #badKeyValues = new Counter({
    name: 'gateway_key_values_rejected_total',
    help: "Decisions that used the last valid value, or the plan's, because the key's own was unusable.",
  });
  readonly #decisionSeconds = new Histogram(
    {
      name: 'gateway_decision_duration_seconds',
      help: 'Time from the head of a request to the decision on it, which is what the gateway adds before it forwards the request.',
    },
    DECISION_SECONDS,
  );

  constructor(operations: readonly string[]) {
    this.#operation = new Label('operation', [NONE, 'reference', ...operations]);
    this.#requests = new Counter(
      { name: REQUESTS, help: 'Client requests, by operation, status and plan.' },
      this.#operation,
      statusLabel(),
      this.#plan,
    );
    this.#requestSeconds = new Histogram(
      {
        name: REQUEST_DURATION,
        help: 'Time from the head of a request until its response was written, by operation.',
      },
      REQUEST_SECONDS,
      this.#operation,
    );
    for (const plan of PLAN_NAMES) this.#shadowRefusals.declare(plan);
    for (const mode of MODES) {
      for (const outcome of ON_NO_PLAN) this.#decisions.declare(outcome, NONE, mode);
      for (const outcome of ON_PLANS) for (const plan of PLAN_NAMES) this.#decisions.declare(outcome, plan, mode);
    }
    this.#badKeyValues.declare('');
    for (const reason of NO_DECISION_REASONS) this.#withoutDecision.declare(reason);
  }

  /** Must be called for every request once its response has ended. */
  answered(exchange: Exchange): void {
    const { clientAddress, peer, request } = exchange;
    const isNamed = request.headers['x-forwarded-for'] !== undefined;
    const source = !isNamed ? 'peer' : peer.isTrusted ? 'proxy' : 'ignored';
    this.#origins.add(this.#source.positionOf(source), this.#network.positionOf(networkKindOf(clientAddress)));
    const operation = this.#operation.positionOf(exchange.route?.operation);
    const plan = this.#plan.positionOf(exchange.plan);
    this.#requests.add(operation, positionOfStatus(exchange.status), plan);
    this.#requestSeconds.observe((exchange.endedAt - exchange.startedAt) / 1_000, operation);
    if (exchange.decision?.isShadowed) this.#shadowRefusals.add(plan);
    if (exchange.decision?.rejected) this.#badKeyValues.add();
    if (exchange.decidedAt !== undefined)
      this.#decisionSeconds.observe((exchange.decidedAt - exchange.startedAt) / 1_000);
    const { outcome } = exchange;
    if (isNoDecision(outcome)) this.#withoutDecision.add(this.#reason.positionOf(outcome));
    else {
      const decided = this.#outcome.positionOf(decisionOf(outcome, exchange));
      this.#decisions.add(decided, plan, this.#mode.positionOf(exchange.mode));
    }
  }

  families(): Family[] {
    const refused = [this.#withoutDecision, this.#shadowRefusals, this.#badKeyValues];
    const counters = [this.#requests, this.#decisions, ...refused, this.#origins];
    return [...counters, this.#requestSeconds, this.#decisionSeconds].map((one) => one.family());
  }
}

/** Attributes a refusal to the bucket with the longer wait: the day bucket if it is empty. */
function decisionOf(outcome: Exclude<Outcome, NoDecisionReason>, { decision }: Exchange): DecisionOutcome {
  if (outcome !== 'refused') return outcome;
  const day = decision?.buckets[1];
  return day !== undefined && day.tokens < 1 ? 'refused_day' : 'refused_minute';
}

export function networkKindOf(address: string): Network {
  if (LOOPBACK.test(address)) return 'loopback';
  return PRIVATE.test(address) ? 'private' : 'public';
}

/** Logs a request. The line has only these fields, so that no key can get into a log. */
export function logExchange(logger: Logger, exchange: Exchange): void {
  const { request, error, decision } = exchange;
  const line = {
    requestId: exchange.id,
    traceId: exchange.trace.id,
    method: request.method ?? undefined,
    path: exchange.canonical && redactApiKeys(exchange.canonical.path).slice(0, MAX_LOGGED_PATH),
    operation: exchange.route?.operation,
    status: exchange.status,
    code: error?.code,
    keyId: exchange.keyId,
    plan: exchange.plan,
    outcome: exchange.outcome,
    mode: exchange.mode,
    // The error code that the response would have without shadow mode.
    shadow: decision?.isShadowed ? 'rate_limit_exceeded' : undefined,
    // Fields of the key that are not usable limits.
    rejectedOverrides: decision?.rejected || undefined,
    address: exchange.clientAddress,
    bytesFromClient: exchange.tunnel?.bytesFromClient,
    bytesFromCore: exchange.tunnel?.bytesFromCore,
    durationMs: roundedMs(exchange.endedAt - exchange.startedAt),
  };
  const reason = exchange.cutBecause;
  if (line.rejectedOverrides !== undefined && line.status < 500) logger.error(line, 'request');
  else if (reason !== undefined) logger.info({ ...line, reason }, 'request');
  else logRequest(logger, 'request', line, error);
}

const LOG_ELSEWHERE_EVERY_MS = 60_000;

/**
 * Logs that a valid secret came from outside its networks, because it may be in the wrong hands. It writes at most one
 * line a minute, with the number of such requests since the last line.
 */
export class ElsewhereLog {
  readonly #logger: Logger;
  #loggedAt = Number.NEGATIVE_INFINITY;
  #since = 0;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  note(keyId: string | undefined, address: string, requestId: string): void {
    this.#since += 1;
    const now = performance.now();
    if (now - this.#loggedAt < LOG_ELSEWHERE_EVERY_MS) return;
    const about = { keyId, address, requestId, requests: this.#since };
    this.#logger.warn(about, 'a secret came from outside its networks and was refused');
    this.#loggedAt = now;
    this.#since = 0;
  }
}
