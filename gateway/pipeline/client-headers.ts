import type { Exchange } from './exchange.ts';
import { limitHeaders, limitStatusHeaders } from './limit-headers.ts';

/**
 * Our headers on every answer to a client, as a flat list.
 * @param beside headers of the answer itself. If they allow any origin already, the CORS headers are left out.
 */
export function clientHeaders(
  { id, limitStatus, keyStatus, cors, route }: Exchange,
  draftFields: boolean,
  beside: readonly string[] = [],
): string[] {
  const headers = ['X-Request-Id', id];
  // A status request gets no Retry-After.
  const tell = limitStatus === keyStatus ? limitStatusHeaders : limitHeaders;
  if (limitStatus !== undefined) headers.push(...tell(limitStatus, draftFields));
  if (cors.length > 0 && !beside.includes('Access-Control-Allow-Origin')) headers.push(...cors);
  if (route?.deprecation !== undefined) headers.push(...route.deprecation);
  return headers;
}
