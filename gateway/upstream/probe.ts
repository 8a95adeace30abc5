import https from 'node:https';
import { http } from '../../shared/http/node-http.ts';
import type { CoreAddress } from './core-addresses.ts';

/** The user agent in the core's log. */
const PROBE_AGENT = 'animal-store-gateway-health';

/**
 * The status of the response to a GET on a separate connection. On a busy one, a probe would measure the gateway.
 * @returns undefined if none arrives in time
 * @throws the fault of the connection
 */
export function statusOf(
  { url, connect }: CoreAddress,
  path: string,
  withinMs: number,
  given: Readonly<Record<string, string>> = {},
): Promise<number | undefined> {
  const { promise, resolve, reject } = Promise.withResolvers<number | undefined>();
  const { request } = url.startsWith('https:') ? https : http;
  const headers = { 'user-agent': PROBE_AGENT, ...given };
  const asked = request(`${url}${path}`, { ...connect, headers, agent: false }, (answer) => {
    answer.once('error', reject);
    answer.once('end', () => resolve(answer.statusCode));
    answer.resume();
  });
  const timer = setTimeout(() => {
    resolve(undefined);
    asked.destroy();
  }, withinMs).unref();
  asked.once('error', reject);
  asked.once('close', () => clearTimeout(timer));
  asked.end();
  return promise;
}
