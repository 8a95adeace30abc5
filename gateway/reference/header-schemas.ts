import { pairsOf } from '../../shared/lists.ts';
import { type Header, type Ref, refTo } from './document.ts';

/** The patterns avoid \\w and \\d, whose meaning differs between languages. */
const LIST_OF_POLICIES = listOfItems(';q=[0-9]+;w=[0-9]+');
const LIST_OF_LIMITS = listOfItems(';r=[0-9]+;t=[0-9]+(;store-(limit|remaining|reset)=[0-9]+)*');

export const HEADERS = {
  'X-RateLimit-Limit': {
    description:
      'The limit that applies: the minute or the day limit, whichever has fewer requests left; on 429, the one with the ' +
      "longer wait; without a valid key, that of the client's address.",
    required: true,
    schema: { type: 'integer', minimum: 1 },
    example: 60,
  },
  'X-RateLimit-Remaining': {
    description: 'Requests left within that limit.',
    required: true,
    schema: { type: 'integer', minimum: 0 },
    example: 59,
  },
  'X-RateLimit-Reset': {
    description:
      'Unix second at which the limit is full again. On 429, the time at which to send the request again, as in Retry-After.',
    required: true,
    schema: { type: 'integer', minimum: 0 },
    example: 1795262400,
  },
  'RateLimit-Policy': {
    description:
      'All limits (draft-ietf-httpapi-ratelimit-headers-11): q requests in w seconds. Some gateways are configured not to send it.',
    required: false,
    schema: { type: 'string', pattern: LIST_OF_POLICIES },
    example: '"minute";q=60;w=60, "day";q=1000;w=86400',
  },
  RateLimit: {
    description:
      'What is left of each limit: r requests within t seconds. A client that waits t/r between requests, or t if r is 0, ' +
      'stays within all limits. On 429, only the limit that was exceeded, with t as in Retry-After. Some gateways are configured not to send it.',
    required: false,
    schema: { type: 'string', pattern: LIST_OF_LIMITS },
    example: '"minute";r=59;t=59;store-limit=60;store-remaining=59;store-reset=1, "day";r=999;t=86314',
  },
  'X-Request-Id': {
    description: "The request's id: the client's own if it is valid, otherwise a new one.",
    required: true,
    schema: { type: 'string', maxLength: 64, pattern: '^[0-9A-Za-z_.-]{1,64}$' },
    example: '1d9d2e71-70ef-42a0-853b-af79a5ee6eab',
  },
  'Server-Timing': {
    description:
      'How the time until the response began was spent, in milliseconds (W3C Server Timing). Only sent if the gateway is configured to.',
    required: false,
    schema: { type: 'string', pattern: listOf('[a-z]+;dur=[0-9.]+') },
    example: 'decision;dur=0.812, waiting;dur=0.094, core;dur=2.301',
  },
  'Retry-After': {
    description:
      'Seconds after which the request will be admitted: until its turn in the line of refused requests, or until a ban ends.',
    required: true,
    schema: { type: 'integer', minimum: 1 },
    example: 1,
  },
  'WWW-Authenticate': {
    description: 'How to authenticate.',
    required: true,
    schema: { type: 'string', const: 'Bearer' },
    example: 'Bearer',
  },
} satisfies Readonly<Record<string, Header>>;

/** This is sent on 403 (RFC 6750 §3.1). */
export const INSUFFICIENT_SCOPE: Header = {
  description: 'The reason why the key was refused.',
  required: true,
  schema: { type: 'string', const: 'Bearer error="insufficient_scope"' },
  example: 'Bearer error="insufficient_scope"',
};

/** This is sent on 405. */
export const ALLOW: Header = {
  description: 'The allowed methods (RFC 9110 §10.2.1).',
  required: true,
  schema: { type: 'string', pattern: '^[A-Z]+(, [A-Z]+)*$' },
  example: 'GET, HEAD, POST',
};

/** This is sent on errors. */
export const HELP: Header = {
  description: 'The link to the explanation of the error (RFC 8288).',
  required: false,
  schema: { type: 'string', pattern: '^</docs#error-[a-z_]+>; rel="help"$' },
  example: '</docs#error-rate_limit_exceeded>; rel="help"',
};

/** This is sent on 503. */
export const RETRY_AFTER_UNAVAILABLE: Header = {
  description: 'Seconds after which to try again. Not every 503 has it.',
  required: false,
  schema: { type: 'integer', minimum: 1 },
  example: 1,
};

function listOfItems(parameters: string): string {
  return listOf(`"[a-z]+"${parameters}`);
}

function listOf(item: string): string {
  return `^${item}(, ${item})*$`;
}

type HeaderName = keyof typeof HEADERS;

/** References to these headers, by name. */
export const refsTo = (names: readonly HeaderName[]): Readonly<Record<string, Ref>> =>
  Object.fromEntries(names.map((name) => [name, refTo('headers', name)]));

/** These headers are sent on every answer, whatever its status. */
export const EVERYWHERE = refsTo([
  'X-RateLimit-Limit',
  'X-RateLimit-Remaining',
  'X-RateLimit-Reset',
  'RateLimit-Policy',
  'RateLimit',
  'X-Request-Id',
  'Server-Timing',
]);

/** The Link to the next page, if there is one. */
export const nextPage = (path: string): Header => ({
  description: 'The link to the next page (RFC 8288). The last page has none.',
  required: false,
  schema: { type: 'string', pattern: `^<${path}\\?[^>]+>; rel="next"$` },
  example: `<${path}?limit=20&after=20>; rel="next"`,
});

const ABOUT_DEPRECATION: Readonly<Record<string, string>> = {
  Deprecation: 'The Unix second since which the operation has been deprecated (RFC 9745).',
  Sunset: 'When the operation will be removed (RFC 8594).',
  Link: 'The operation to use instead (RFC 8288).',
};

/**
 * Describes the headers of a deprecated operation.
 * @param flat alternating names and values, as they are sent
 * @param required whether all such answers have them; answers before routing do not
 */
export function deprecationHeaders(flat: readonly string[], required: boolean): Readonly<Record<string, Header>> {
  const headers = pairsOf(flat).map(([name, value]) => {
    const schema = { type: 'string', const: value };
    return [name, { description: ABOUT_DEPRECATION[name] ?? name, required, schema, example: value }] as const;
  });
  return Object.fromEntries(headers);
}
