import https from 'node:https';
import { http } from '../../shared/http/node-http.ts';
import { type CheckResult, fault, good, refusingCore, silentCore, unreachableCore, warning } from '../check-result.ts';
import { type CoreAddress, resolveCores } from './core-addresses.ts';
import { CoreRefusedUs } from './faults.ts';

/** Checks the cores without an HTTP library, because the operators' process loads none. */

const SLOW_MS = 250;

/**
 * Checks whether each address of each core is reachable, is ready, and accepts our token.
 * @param urls entries of CORE_URL
 */
export const checkCores = (urls: readonly string[], token: string | undefined): Promise<CheckResult[]> =>
  lookAtEach(urls, (address) => checkCore(address, token));

async function checkCore(address: CoreAddress, token: string | undefined): Promise<CheckResult> {
  const about = `core ${address.origin}`;
  const askedAt = performance.now();
  const ready = await probe(address);
  const ms = performance.now() - askedAt;
  if (ready.status !== 'good') return ready;
  try {
    const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
    const listed = await statusOf(address, '/v1/pets?limit=1', headers);
    if (listed === undefined) return silentCore(about);
    if (CoreRefusedUs.saysSo(listed)) return refusingCore(about);
    if (listed !== 200) return fault(about, `answers ${listed} to GET /v1/pets`, 'Its log says why.');
  } catch (thrown) {
    return fault(about, `does not answer GET /v1/pets: ${(thrown as Error).message}`, 'Its log may say why.');
  }
  const found = `is ready, and answers in ${ms.toFixed(0)} ms`;
  return ms > SLOW_MS ? warning(about, found, 'Look at its CPU and its database.') : good(about, found);
}

const TIMEOUT_MS = 2_000;
/** The user agent in the core's log. */
const PROBE_AGENT = 'animal-store-gateway-health';
const READY = 200;

/** Checks whether each core is ready. @param urls entries of CORE_URL */
export const probeCores = (urls: readonly string[]): Promise<CheckResult[]> => lookAtEach(urls, probe);

/** Applies a check to each address of each entry of CORE_URL. */
const lookAtEach = async (
  urls: readonly string[],
  look: (address: CoreAddress) => Promise<CheckResult>,
): Promise<CheckResult[]> => (await Promise.all(urls.map((url) => lookAtAll(url, look)))).flat();

async function lookAtAll(url: string, look: (address: CoreAddress) => Promise<CheckResult>): Promise<CheckResult[]> {
  try {
    return await Promise.all((await resolveCores(url)).map(look));
  } catch (thrown) {
    return [fault(`core ${url}`, `cannot be resolved: ${(thrown as Error).message}`, 'Check CORE_URL and the DNS.')];
  }
}

/** Checks whether a core is ready. */
async function probe(address: CoreAddress): Promise<CheckResult> {
  const about = `core ${address.origin}`;
  try {
    const status = await statusOf(address, '/readyz');
    if (status === READY) return good(about, 'is ready');
    if (status === undefined) return silentCore(about);
    return fault(about, `is not ready: /readyz answers ${status}`, 'Its log says why.');
  } catch (thrown) {
    return unreachableCore(about, (thrown as Error).message);
  }
}

/**
 * The status of the answer to a GET.
 * @returns undefined without an answer in time
 * @throws the fault of the connection
 */
function statusOf(
  { url, connect }: CoreAddress,
  path: string,
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
  }, TIMEOUT_MS).unref();
  asked.once('error', reject);
  asked.once('close', () => clearTimeout(timer));
  asked.end();
  return promise;
}
