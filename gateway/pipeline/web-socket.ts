import type { IncomingMessage } from 'node:http';
import { HttpError } from '../../shared/http/errors.ts';

/** Whether a request asks for an upgrade to WebSocket only (RFC 6455 §4.1). */
export const asksForWebSocket = ({ method, headers: { upgrade = '' } }: IncomingMessage): boolean =>
  method === 'GET' && upgrade.toLowerCase() === 'websocket';

/** Sixteen bytes in base64 (RFC 6455 §4.1). */
const KEY = /^[\w+/]{22}==$/;

/** @throws {HttpError} 400 for an invalid opening handshake (RFC 6455 §4.2.1) */
export function checkHandshake({ headers }: IncomingMessage): void {
  if (headers['sec-websocket-version'] !== '13' || !KEY.test(String(headers['sec-websocket-key']))) {
    throw new HttpError('invalid_request', 'The WebSocket handshake is not one of RFC 6455, version 13.');
  }
  // Headers named in Connection are not forwarded, so the core would have to refuse the handshake.
  if (/sec-websocket/i.test(headers.connection ?? '')) {
    throw new HttpError('invalid_request', 'Connection must not name parts of the handshake.');
  }
}
