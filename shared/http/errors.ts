import { Conflict, OutcomeUnknown, Unavailable } from '../domain-errors.ts';

interface ErrorRow {
  readonly status: number;
  /** The default message. */
  readonly message: string;
  /** What the client should do about it, for the reference. */
  readonly cure: string;
  /** Whether no operation of the admin API returns it. */
  readonly isForClientsOnly?: true;
}

const LOOK_FIRST =
  'Send a GET again. Before you repeat a POST, check whether it took effect, or send it with an `Idempotency-Key`.';

/** All errors for clients and internal services, by code. The reference and the OpenAPI documents list them. */
export const ERRORS = {
  invalid_request: {
    status: 400,
    message: 'The request is malformed.',
    cure: 'The message names what is malformed. Correct the request; an unchanged one is refused again.',
  },
  invalid_parameter: {
    status: 400,
    message: 'A parameter has an invalid value.',
    cure: 'The message names the parameter and the values that it accepts.',
  },
  unauthorized: {
    status: 401,
    message: 'A valid API key is required in the header Authorization: Bearer as_...',
    cure: 'Send `Authorization: Bearer as_…` with the whole key. If the key is complete, it has been revoked, disabled or replaced, has expired, or is bound to other networks: ask its issuer.',
  },
  insufficient_scope: {
    status: 403,
    message: 'This API key lacks the required scope.',
    cure: 'Use a key whose scope covers the method: `read` for GET, `write` for all others.',
    isForClientsOnly: true,
  },
  not_found: { status: 404, message: 'The requested resource could not be found.', cure: 'Check the path and the id.' },
  method_not_allowed: {
    status: 405,
    message: 'The method is not allowed here.',
    cure: 'The header `Allow` lists the methods of this path.',
    isForClientsOnly: true,
  },
  request_timeout: {
    status: 408,
    message: 'The request took too long to arrive.',
    cure: 'Send head and body without long pauses, on a new connection.',
  },
  conflict: {
    status: 409,
    message: 'The request conflicts with the current state.',
    cure: 'Read the current state, and decide whether the request is still needed.',
  },
  payload_too_large: { status: 413, message: 'The request body is too large.', cure: 'Send a smaller body.' },
  uri_too_long: { status: 414, message: 'The request target is too long.', cure: 'Shorten the query.' },
  unsupported_media_type: {
    status: 415,
    message: 'The body must be uncompressed application/json.',
    cure: 'Send JSON with `Content-Type: application/json`, in UTF-8 and without a Content-Encoding.',
  },
  expectation_failed: {
    status: 417,
    message: 'The only supported expectation is 100-continue.',
    cure: 'Leave out the header `Expect`, or send `100-continue`.',
  },
  rate_limit_exceeded: {
    status: 429,
    message: 'Rate limit exceeded. Retry after the time in the Retry-After header.',
    cure: 'Wait the number of seconds in `Retry-After`, then send the request again. If this happens often, spread your requests, or ask for a larger plan.',
  },
  key_banned: {
    status: 429,
    message: 'This API key is temporarily banned. Retry after the time in the Retry-After header.',
    cure: 'Stop sending for the time in `Retry-After`. A key whose only client waits after each 429 is never banned.',
    isForClientsOnly: true,
  },
  headers_too_large: {
    status: 431,
    message: 'The request headers are too large.',
    cure: 'Send fewer or shorter headers.',
  },
  internal_error: {
    status: 500,
    message: 'Something went wrong on our side.',
    cure: 'Send the request again later. If the error persists, report the `X-Request-Id`.',
  },
  bad_gateway: {
    status: 502,
    message: 'The store could not be reached or sent an unusable response.',
    cure: LOOK_FIRST,
    isForClientsOnly: true,
  },
  unavailable: {
    status: 503,
    message: 'The service is temporarily unavailable.',
    cure: 'Send the request again after `Retry-After`, or after a second.',
  },
  gateway_timeout: {
    status: 504,
    message: 'The store took too long to respond.',
    cure: LOOK_FIRST,
    isForClientsOnly: true,
  },
  http_version_not_supported: {
    status: 505,
    message: 'Only HTTP/1.1 and HTTP/1.0 are supported.',
    cure: 'Use HTTP/1.1.',
  },
} as const satisfies Record<string, ErrorRow>;

/** All errors, including the one that only the operators' listener sends. */
export const ALL_ERRORS = { ...ERRORS, forbidden: { status: 403, message: 'This is not allowed.' } } as const;

export type ErrorCode = keyof typeof ERRORS;
export type AnyErrorCode = keyof typeof ALL_ERRORS;

interface HttpErrorOptions {
  /** The original fault; logged, never sent. */
  cause?: unknown;
  /** Headers of this response, as a flat list of names and values. */
  headers?: readonly string[];
  closes?: boolean;
}

/** An error response. `message` is public; the internal detail is the `cause`. */
export class HttpError extends Error {
  readonly code: AnyErrorCode;
  readonly status: number;
  readonly headers: readonly string[];
  readonly closes: boolean;

  constructor(code: AnyErrorCode, message: string = ALL_ERRORS[code].message, options: HttpErrorOptions = {}) {
    // Errors are frequent responses. A stack would add nothing, and collecting it is expensive.
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    Error.stackTraceLimit = stackTraceLimit;
    this.code = code;
    this.status = ALL_ERRORS[code].status;
    this.headers = options.headers ?? [];
    this.closes = options.closes === true;
  }
}

/** The 503 for an unavailable dependency, with a Retry-After of one second. */
export const unavailable = (cause: unknown, shown?: string): HttpError =>
  new HttpError('unavailable', shown, { cause, headers: ['Retry-After', '1'] });

/** 405 with the allowed methods (RFC 9110 §15.5.6). */
export const methodNotAllowed = (allowed: string): HttpError =>
  new HttpError('method_not_allowed', undefined, { headers: ['Allow', allowed] });

/** The error response for any thrown value. An unknown fault becomes a 500 without details. */
export function toHttpError(thrown: unknown): HttpError {
  if (thrown instanceof HttpError) return thrown;
  if (thrown instanceof OutcomeUnknown)
    return new HttpError('gateway_timeout', thrown.shown, { cause: thrown.cause ?? thrown });
  if (thrown instanceof Unavailable) return unavailable(thrown.cause ?? thrown, thrown.shown);
  if (thrown instanceof Conflict) return new HttpError('conflict', thrown.message);
  return new HttpError('internal_error', undefined, { cause: thrown });
}

/** A link to the explanation of an error (RFC 8288), as a flat list. */
export const helpFor = (code: string): readonly string[] => ['Link', `</docs#error-${code}>; rel="help"`];

/** A message can quote the request, so its length is limited. */
export const MAX_MESSAGE_LENGTH = 1_000;

/** The Error shape on the wire: exactly `code`, `message` and `status`. */
export function errorBody({ code, message, status }: HttpError): string {
  const isShort = message.length <= MAX_MESSAGE_LENGTH;
  const shown = isShort ? message : `${message.slice(0, MAX_MESSAGE_LENGTH - 1).toWellFormed()}…`;
  return JSON.stringify({ code, message: shown, status });
}
