import { type CheckResult, fault, good, silentCore, warning } from '../check-result.ts';
import type { CoreAddress } from './core-url.ts';
import { lookAtEach, probe, statusOf } from './probe-core.ts';

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
    if (listed === 401) return fault(about, 'rejects our token', 'CORE_TOKEN must be the same on both sides.');
    if (listed !== 200) return fault(about, `answers ${listed} to GET /v1/pets`, 'Its log says why.');
  } catch (thrown) {
    return fault(about, `does not answer GET /v1/pets: ${(thrown as Error).message}`, 'Its log may say why.');
  }
  const found = `is ready, and answers in ${ms.toFixed(0)} ms`;
  return ms > SLOW_MS ? warning(about, found, 'Look at its CPU and its database.') : good(about, found);
}
