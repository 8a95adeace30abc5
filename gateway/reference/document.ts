import { ALL_ERRORS, type AnyErrorCode, ERRORS } from '../../shared/http/errors.ts';
import { http } from '../../shared/http/node-http.ts';
import { pairsOf } from '../../shared/lists.ts';

/** The parts of OpenAPI 3.1 that the descriptions of both APIs use, and the headers and errors that operations share. */

export type Ref = Readonly<Record<'$ref', string>>;

/** A JSON Schema (draft 2020-12). */
export type Schema = Readonly<Record<string, unknown>>;

export interface Header {
  readonly description: string;
  /** Whether every response that lists the header has it, or only some do. */
  readonly required: boolean;
  readonly schema: Schema;
  readonly example: string | number;
}

export interface Parameter {
  readonly name: string;
  readonly in: 'query' | 'path' | 'header';
  readonly required: boolean;
  readonly description: string;
  /** The example is part of the schema, because try-it panels would be filled with a separate one. */
  readonly schema: Schema;
}

export interface Content {
  readonly 'application/json': {
    readonly schema: Schema;
    readonly example?: unknown;
    readonly examples?: Readonly<Record<string, { readonly value: unknown }>>;
  };
}

export interface Response {
  readonly description: string;
  readonly headers: Readonly<Record<string, Header | Ref>>;
  /** Undefined without a body. */
  readonly content?: Content;
}

export type Responses = Readonly<Record<string, Response | Ref>>;

/**
 * The extension that our page shows, as Redoc and Scalar do:
 * https://redocly.com/docs/realm/author/reference/openapi-extensions/x-code-samples.
 */
export interface CodeSample {
  readonly lang: string;
  readonly label: string;
  readonly source: string;
}

export interface Operation {
  readonly operationId: string;
  readonly tags: readonly string[];
  readonly summary: string;
  readonly description: string;
  readonly deprecated?: true;
  readonly parameters: readonly (Parameter | Ref)[];
  readonly requestBody?: { readonly required: boolean; readonly description: string; readonly content: Content };
  readonly responses: Responses;
  readonly 'x-codeSamples'?: readonly CodeSample[];
  /** False disables the try-it panel of the operation. */
  readonly 'x-try-it-out'?: false;
}

/** Operations by path and method. */
export type Paths = Record<string, Record<string, Operation>>;

export const refTo = (kind: string, name: string): Ref => ({ $ref: `#/components/${kind}/${name}` });

/** Resolves a reference to a component and, for a parameter, also that of its schema. */
export function resolved<T extends object>(
  api: { readonly components: object },
  value: T | Ref,
): T & { schema: Schema } & Schema {
  const path = '$ref' in value ? (value as Ref).$ref.split('/').slice(1) : undefined;
  const found = (path?.reduce((part, name) => (part as Record<string, object>)[name] as object, api as object) ??
    value) as T & { schema: Schema } & Schema;
  return found.schema === undefined ? found : { ...found, schema: resolved(api, found.schema) };
}

const always = (schema: Schema, example: string | number, description: string): Header => {
  return { description, required: true, schema, example };
};
const sometimes = (...about: Parameters<typeof always>): Header => ({ ...always(...about), required: false });

/** The patterns avoid \\w and \\d, whose meaning differs between languages. */
const listOf = (item: string): string => `^${item}(, ${item})*$`;

export const HEADERS = {
  'X-RateLimit-Limit': always(
    { type: 'integer', minimum: 1 },
    60,
    'The limit that applies: the minute or the day limit, whichever has fewer requests left, or the day limit if neither has any; on 429, the one with the ' +
      "longer wait; without a valid key, that of the client's address.",
  ),
  'X-RateLimit-Remaining': always({ type: 'integer', minimum: 0 }, 59, 'Requests left within that limit.'),
  'X-RateLimit-Reset': always(
    { type: 'integer', minimum: 0 },
    1795262400,
    'Unix second at which the limit is full again. On 429, the time at which to retry, as in Retry-After.',
  ),
  'RateLimit-Policy': sometimes(
    { type: 'string', pattern: listOf('"[a-z]+";q=[0-9]+;w=[0-9]+') },
    '"minute";q=60;w=60, "day";q=1000;w=86400',
    'All limits (draft-ietf-httpapi-ratelimit-headers-11): q requests in w seconds. Some gateways are configured not to send it.',
  ),
  RateLimit: sometimes(
    { type: 'string', pattern: listOf('"[a-z]+";r=[0-9]+;t=[0-9]+(;store-(limit|remaining|reset)=[0-9]+)*') },
    '"minute";r=59;t=59;store-limit=60;store-remaining=59;store-reset=1, "day";r=999;t=86314',
    'The remainder of each limit: r requests within t seconds. A client that waits t/r between requests, or t if r is 0, ' +
      'stays within all limits. On 429, only the limit that was exceeded, with t as in Retry-After. Some gateways are configured not to send it.',
  ),
  'X-Request-Id': always(
    { type: 'string', maxLength: 64, pattern: '^[0-9A-Za-z_.-]{1,64}$' },
    '1d9d2e71-70ef-42a0-853b-af79a5ee6eab',
    "The request's id: the client's own if it is valid, otherwise a new one.",
  ),
  'Server-Timing': sometimes(
    { type: 'string', pattern: listOf('[a-z]+;dur=[0-9.]+') },
    'decision;dur=0.812, waiting;dur=0.094, core;dur=2.301',
    'How the time until the response began was spent, in milliseconds (W3C Server Timing). Sent only if the gateway is configured to do so.',
  ),
  'Retry-After': always(
    { type: 'integer', minimum: 1 },
    1,
    'Seconds after which the request will be admitted, unless other programs take the token: until its turn in the line of refused requests or, after a ban, until there is a token.',
  ),
  'WWW-Authenticate': always({ type: 'string', const: 'Bearer' }, 'Bearer', 'How to authenticate.'),
} satisfies Readonly<Record<string, Header>>;

/** This is sent on 405. */
export const ALLOW = always(
  { type: 'string', pattern: '^[A-Z]+(, [A-Z]+)*$' },
  'GET, HEAD, POST',
  'The allowed methods (RFC 9110 §10.2.1).',
);

/** This is sent on errors. */
export const HELP = sometimes(
  { type: 'string', pattern: '^</docs#error-[a-z_]+>; rel="help"$' },
  '</docs#error-rate_limit_exceeded>; rel="help"',
  'The link to the explanation of the error (RFC 8288).',
);

/** References to these headers, by name. */
export const refsTo = (names: readonly (keyof typeof HEADERS)[]): Readonly<Record<string, Ref>> =>
  Object.fromEntries(names.map((name) => [name, refTo('headers', name)]));

/** These headers are sent on every response, whatever its status. */
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
export const nextPage = (path: string): Header =>
  sometimes(
    { type: 'string', pattern: `^<${path}\\?[^>]+>; rel="next"$` },
    `<${path}?limit=20&after=20>; rel="next"`,
    'The link to the next page (RFC 8288). The last page has none.',
  );

const ABOUT_DEPRECATION: Readonly<Record<string, string>> = {
  Deprecation: 'The Unix second since which the operation has been deprecated (RFC 9745).',
  Sunset: 'When the operation will be removed (RFC 8594).',
  Link: 'The operation to use instead (RFC 8288).',
};

/**
 * Describes the headers of a deprecated operation.
 * @param flat alternating names and values, as they are sent
 * @param required whether every response with this status has these headers. A response that is sent before routing
 *   lacks them
 */
export function deprecationHeaders(flat: readonly string[], required: boolean): Readonly<Record<string, Header>> {
  const headers = pairsOf(flat).map(([name, value]) => {
    const schema = { type: 'string', const: value };
    return [name, { description: ABOUT_DEPRECATION[name] ?? name, required, schema, example: value }] as const;
  });
  return Object.fromEntries(headers);
}

const HEADERS_OF: Readonly<Record<number, Response['headers']>> = {
  401: refsTo(['WWW-Authenticate']),
  // RFC 6750 §3.1.
  403: {
    'WWW-Authenticate': always(
      { type: 'string', const: 'Bearer error="insufficient_scope"' },
      'Bearer error="insufficient_scope"',
      'The reason why the key was refused.',
    ),
  },
  405: { Allow: ALLOW },
  429: refsTo(['Retry-After']),
  503: {
    'Retry-After': sometimes(
      { type: 'integer', minimum: 1 },
      1,
      'Seconds to wait before a retry. Not every 503 has it.',
    ),
  },
};

export const ERROR_RESPONSES = errorResponses(Object.keys(ERRORS) as AnyErrorCode[], (status) => ({
  ...EVERYWHERE,
  Link: HELP,
  ...HEADERS_OF[status],
}));

/**
 * Describes the responses for the given errors, by their status.
 * @param headersOf returns the headers of the responses with a given status
 */
export function errorResponses(
  codes: readonly AnyErrorCode[],
  headersOf: (status: number) => Response['headers'],
): ReadonlyMap<number, ReturnType<typeof errorResponse>> {
  const byStatus = Map.groupBy(codes, (code) => ALL_ERRORS[code].status);
  return new Map([...byStatus].map(([status, those]) => [status, errorResponse(status, those, headersOf(status))]));
}

function errorResponse(status: number, codes: readonly AnyErrorCode[], headers: Response['headers']) {
  const examples = codes.map((code) => [code, { value: { code, message: ALL_ERRORS[code].message, status } }]);
  // The types are explicit, because a generator may mistake a constant without a type for a string.
  const narrowed = {
    type: 'object',
    properties: { code: { type: 'string', enum: codes }, status: { type: 'integer', const: status } },
  };
  return {
    // 'NotFound' for 404.
    name: (http.STATUS_CODES[status] ?? String(status)).replaceAll(/[^A-Za-z]/g, ''),
    response: {
      description: codes.map((code) => `\`${code}\`: ${ALL_ERRORS[code].message}`).join('\n\n'),
      headers,
      content: {
        'application/json': {
          schema: { allOf: [refTo('schemas', 'Error'), narrowed] },
          examples: Object.fromEntries(examples),
        },
      },
    },
  };
}
