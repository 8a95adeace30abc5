import { type ErrorCode, HttpError, methodNotAllowed } from './errors.ts';

/** OpenSSL's code for a request without TLS instead of a handshake. */
export const PLAIN_HTTP = 'ERR_SSL_HTTP_REQUEST';

/** Node's and llhttp's codes. */
const CODES: Readonly<Record<string, ErrorCode>> = {
  HPE_HEADER_OVERFLOW: 'headers_too_large',
  HPE_CHUNK_EXTENSIONS_OVERFLOW: 'payload_too_large',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
};

/** What llhttp says of a version that is one, and not ours. All else that is wrong behind HTTP/ is bad syntax. */
const OTHER_VERSION = 'Invalid HTTP version';

export interface ConnectionFault extends NodeJS.ErrnoException {
  readonly reason?: string;
}

/** The error for bytes that are no valid request, or that end in the middle of one. */
export function connectionError({ code = '', reason }: Pick<ConnectionFault, 'code' | 'reason'>): HttpError {
  // A request to open a tunnel, which no server here does.
  if (code === 'CONNECT') return methodNotAllowed('GET, HEAD, POST');
  if (code === PLAIN_HTTP)
    return new HttpError('invalid_request', 'This port speaks TLS: the URL begins with https://.');
  if (reason === OTHER_VERSION) return new HttpError('http_version_not_supported');
  return new HttpError(CODES[code] ?? 'invalid_request');
}

/** Whether the connection itself has failed, so that nobody reads an answer. */
export const isLost = ({ code }: ConnectionFault): boolean => code === 'ECONNRESET' || code === 'EPIPE';
