import { request } from 'undici';
import { type Finding, fault, good, warning } from '../finding.ts';

/** Of a core that should answer a probe at once. */
const TIMEOUT_MS = 2_000;
const SLOW_MS = 250;

/** Whether the cores are there, ready, and take our token. */
export const examineCores = (origins: readonly string[], token: string | undefined): Promise<Finding[]> =>
  Promise.all(origins.map((origin) => examineCore(origin, token)));

async function examineCore(origin: string, token: string | undefined): Promise<Finding> {
  const about = `core ${origin}`;
  const askedAt = performance.now();
  try {
    const ready = await statusOf(`${origin}/readyz`, {});
    const ms = performance.now() - askedAt;
    if (ready !== 200)
      return fault(about, `is not ready: /readyz answers ${ready}`, 'Its log says why: its database, mostly.');
    const listed = await statusOf(
      `${origin}/v1/pets?limit=1`,
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

async function statusOf(url: string, headers: Record<string, string>): Promise<number> {
  const timeouts = { headersTimeout: TIMEOUT_MS, bodyTimeout: TIMEOUT_MS, signal: AbortSignal.timeout(TIMEOUT_MS) };
  const { statusCode, body } = await request(url, { headers, ...timeouts });
  await body.dump();
  return statusCode;
}
