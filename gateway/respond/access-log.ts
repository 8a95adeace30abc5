import type { Logger } from '../../shared/logger.ts';
import { redactApiKeys } from '../access/credential.ts';
import type { Exchange } from '../exchange.ts';

/** A longer path is none of ours, and would make a line too long to be written in one piece. */
const MAX_PATH_LENGTH = 1_024;

/** The one line that every request leaves: these fields and no others, so that no key can get into a log. */
export function logExchange(logger: Logger, exchange: Exchange): void {
  const { request, error } = exchange;
  const line = {
    requestId: exchange.id,
    traceId: exchange.trace.id,
    method: request.method,
    path: exchange.path && redactApiKeys(exchange.path).slice(0, MAX_PATH_LENGTH),
    operation: exchange.route?.operation,
    status: exchange.status,
    code: error?.code,
    keyId: exchange.keyId,
    plan: exchange.plan,
    outcome: exchange.outcome,
    mode: exchange.mode,
    shadow: exchange.shadow,
    rejectedOverrides: exchange.rejectedOverrides || undefined,
    address: exchange.address,
    bytesFromClient: exchange.tunnel?.bytesFromClient,
    bytesFromCore: exchange.tunnel?.bytesFromCore,
    durationMs: Math.round((performance.now() - exchange.startedAt) * 1_000) / 1_000,
  };
  if (error?.code === 'internal_error') logger.error({ ...line, err: error.cause }, 'request');
  else if (error?.cause !== undefined) logger.warn({ ...line, reason: reasonOf(error.cause) }, 'request');
  else if (line.rejectedOverrides !== undefined) logger.error(line, 'request');
  else logger.info(line, 'request');
}

/** A known fault in one line, down to its root; a stack would tell nothing more. */
function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  return cause.cause instanceof Error ? `${cause.message} ${reasonOf(cause.cause)}` : cause.message;
}
