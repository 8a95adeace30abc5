import { randomUUID } from 'node:crypto';
import type { Socket } from 'node:net';
import { beginTrace } from '../../shared/http/trace.ts';
import type { Logger } from '../../shared/process/logger.ts';
import type { AddressAllowance } from '../limiter/address-allowance.ts';
import type { Traffic } from '../telemetry/request-metrics.ts';
import { networkOf, plainAddress } from './client-address.ts';
import { limitHeaders } from './limit-headers.ts';
import { connectionError, sendRawError } from './send-error.ts';

interface UnusableConnection {
  readonly fault: NodeJS.ErrnoException;
  readonly socket: Socket;
  readonly allowance: AddressAllowance;
  readonly draftFields: boolean;
  readonly logger: Logger;
  readonly traffic: Traffic;
}

/** Answers and logs a connection that brought no valid request, unless it is gone. */
export function answerUnusable({ fault, socket, allowance, draftFields, logger, traffic }: UnusableConnection): void {
  if (!socket.writable || fault.code === 'ECONNRESET') {
    socket.destroy();
    return;
  }
  const address = networkOf(plainAddress(socket.remoteAddress));
  allowance.consume(address);
  const error = connectionError(fault);
  const requestId = randomUUID();
  traffic.unusable(error.status);
  sendRawError(socket, error, requestId, limitHeaders(allowance.peek(address), draftFields));
  logger.info(
    { requestId, traceId: beginTrace().id, status: error.status, code: error.code, address, reason: fault.code },
    'request',
  );
}
