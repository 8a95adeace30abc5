import { Client } from 'undici';
import { type CheckResult, fault, good, warning } from '../check-result.ts';
import type { CoreAddress } from './core-url.ts';
import { lookAtEach } from './probe-core.ts';

/** For a probe, which a core should answer at once. */
const TIMEOUT_MS = 2_000;
const SLOW_MS = 250;

/**
 * Checks whether the cores are reachable, ready, and accept our token: each address of each name.
 * @param urls entries of CORE_URL
 */
export const checkCores = (urls: readonly string[], token: string | undefined): Promise<CheckResult[]> =>
  lookAtEach(urls, (address) => checkCore(address, token));

async function checkCore(address: CoreAddress, token: string | undefined): Promise<CheckResult> {
  const about = `core ${address.origin}`;
  const askedAt = performance.now();
  try {
    const ready = await statusOf(address, '/readyz', {});
    const ms = performance.now() - askedAt;
    if (ready !== 200)
      return fault(about, `is not ready: /readyz answers ${ready}`, 'Its log says why: its database, mostly.');
    const listed = await statusOf(
      address,
      '/v1/pets?limit=1',
      token === undefined ? {} : { authorization: `Bearer ${token}` },
    );
    if (listed === 401) return fault(about, 'does not take our token', 'CORE_TOKEN must be the same on both sides.');
    if (listed !== 200) return fault(about, `answers ${listed} to GET /v1/pets`, 'Its log says why.');
    const found = `is ready, and answers in ${ms.toFixed(0)} ms`;
    return ms > SLOW_MS ? warning(about, found, 'Look at its CPU and its database.') : good(about, found);
  } catch (thrown) {
    return fault(about, `gives no answer: ${(thrown as Error).message}`, 'Is it there, and does CORE_URL name it?');
  }
}

async function statusOf({ url, connect }: CoreAddress, path: string, headers: Record<string, string>): Promise<number> {
  const client = new Client(url, { connect });
  const timeouts = { headersTimeout: TIMEOUT_MS, bodyTimeout: TIMEOUT_MS, signal: AbortSignal.timeout(TIMEOUT_MS) };
  try {
    const { statusCode, body } = await client.request({ method: 'GET', path, headers, ...timeouts });
    await body.dump();
    return statusCode;
  } finally {
    await client.destroy();
  }
}
