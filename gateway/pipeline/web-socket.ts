import type { IncomingMessage } from 'node:http';
import { HttpError } from '../../shared/errors.ts';

/** Whether a request asks to go on as a WebSocket (RFC 6455 §4.1), and as nothing else. */
export const asksForWebSocket = ({ method, headers: { upgrade = '' } }: IncomingMessage): boolean =>
  method === 'GET' && upgrade.toLowerCase() === 'websocket';

/** Sixteen bytes in base64 (RFC 6455 §4.1). */
const KEY = /^[\w+/]{22}==$/;

/** @throws {HttpError} 400 for an opening handshake that no server may take (RFC 6455 §4.2.1) */
export function checkHandshake({ headers }: IncomingMessage): void {
  if (headers['sec-websocket-version'] !== '13' || !KEY.test(String(headers['sec-websocket-key']))) {
    throw new HttpError('invalid_request', 'The WebSocket handshake is not one of RFC 6455, version 13.');
  }
  // What Connection names stays behind, and a handshake without it would be the core's to refuse.
  if (/sec-websocket/i.test(headers.connection ?? '')) {
    throw new HttpError('invalid_request', 'Connection must not name parts of the handshake.');
  }
}
