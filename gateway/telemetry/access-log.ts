import { logRequest, MAX_LOGGED_PATH, millisecondsSince } from '../../shared/http/request-log.ts';
import type { Logger } from '../../shared/process/logger.ts';
import { redactApiKeys } from '../limiter/credential.ts';
import type { Exchange } from '../pipeline/exchange.ts';

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
    // The answer without shadow mode.
    shadow: decision?.isShadowed ? 'rate_limit_exceeded' : undefined,
    // Fields of the key that are not usable limits.
    rejectedOverrides: decision?.rejected || undefined,
    address: exchange.network,
    bytesFromClient: exchange.tunnel?.bytesFromClient,
    bytesFromCore: exchange.tunnel?.bytesFromCore,
    durationMs: millisecondsSince(exchange.startedAt),
  };
  if (line.rejectedOverrides !== undefined && line.status < 500) logger.error(line, 'request');
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
