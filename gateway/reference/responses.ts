import { ALL_ERRORS, type AnyErrorCode, ERRORS } from '../../shared/http/errors.ts';
import { http } from '../../shared/http/node-http.ts';
import { type Response, refTo } from './document.ts';
import { ALLOW, EVERYWHERE, HELP, INSUFFICIENT_SCOPE, RETRY_AFTER_UNAVAILABLE, refsTo } from './header-schemas.ts';

/** The error answers, one for each status. The code distinguishes errors of the same status. */

export interface ErrorResponse {
  readonly name: string;
  readonly response: Response;
}

const HEADERS_OF: Readonly<Record<number, Response['headers']>> = {
  401: refsTo(['WWW-Authenticate']),
  403: { 'WWW-Authenticate': INSUFFICIENT_SCOPE },
  405: { Allow: ALLOW },
  429: refsTo(['Retry-After']),
  503: { 'Retry-After': RETRY_AFTER_UNAVAILABLE },
};

export const ERROR_RESPONSES: ReadonlyMap<number, ErrorResponse> = new Map(
  errorResponses(Object.keys(ERRORS) as AnyErrorCode[], (status) => ({
    ...EVERYWHERE,
    Link: HELP,
    ...HEADERS_OF[status],
  })),
);

/**
 * Describes an answer for each status of some errors.
 * @param headersOf returns the headers of an answer with a status
 */
export function errorResponses(
  codes: readonly AnyErrorCode[],
  headersOf: (status: number) => Response['headers'],
): [status: number, ErrorResponse][] {
  const byStatus = Map.groupBy(codes, (code) => ALL_ERRORS[code].status);
  return [...byStatus].map(([status, those]) => [status, errorResponse(status, those, headersOf(status))]);
}

function errorResponse(status: number, codes: readonly AnyErrorCode[], headers: Response['headers']): ErrorResponse {
  const examples = codes.map((code) => {
    const value = { code, message: ALL_ERRORS[code].message, status };
    return [code, { value }] as const;
  });
  // The types are explicit, because a generator may take a constant without a type for a string.
  const narrowed = {
    type: 'object',
    properties: { code: { type: 'string', enum: codes }, status: { type: 'integer', const: status } },
  };
  return {
    name: nameOf(status),
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

/** 'NotFound' for 404. */
function nameOf(status: number): string {
  return (http.STATUS_CODES[status] ?? String(status)).replaceAll(/[^A-Za-z]/g, '');
}
