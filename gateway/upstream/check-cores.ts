import { type CheckResult, fault, good, isBad, unknown, warning } from '../check-result.ts';
import { answerTo } from './connect.ts';
import { type CoreAddress, resolveCores } from './core-addresses.ts';
import { CoreRefusedUs, NotJson } from './faults.ts';

const SLOW_MS = 250;

/**
 * Checks whether each address of each core is reachable, is ready, accepts our token, and answers with JSON.
 * @param urls entries of CORE_URL
 * @param path the path of a read with which the token is checked; undefined if there is none
 */
export const checkCores = (
  urls: readonly string[],
  token: string | undefined,
  path: string | undefined,
): Promise<CheckResult[]> => lookAtEach(urls, (address, isOnly) => checkCore(address, isOnly, token, path));

async function checkCore(
  address: CoreAddress,
  isOnly: boolean,
  token: string | undefined,
  path: string | undefined,
): Promise<CheckResult> {
  const about = `core ${address.origin}`;
  const askedAt = performance.now();
  const ready = await probe(address, isOnly);
  const ms = performance.now() - askedAt;
  if (isBad(ready) || path === undefined) return ready;
  try {
    const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
    const answer = await answerTo(address, path, BOTH_WITHIN_MS - ms, headers);
    if (answer === undefined) return silentCore(about);
    const { status, foreignType } = answer;
    if (CoreRefusedUs.saysSo(status))
      return fault(about, 'rejects our token', 'CORE_TOKEN must be the same on both sides.');
    if (foreignType !== undefined)
      return fault(about, `answers ${status} to GET ${path} with ${foreignType} instead of JSON`, NotJson.advice);
    if (status >= 500) return fault(about, `answers ${status} to GET ${path}`, 'Its log shows why.');
  } catch (thrown) {
    return fault(about, `does not answer GET ${path}: ${(thrown as Error).message}`, 'Its log may show why.');
  }
  if (ready.status === 'warning') return ready;
  const found = `is ready, and answers in ${ms.toFixed(0)} ms`;
  return ms > SLOW_MS ? warning(about, found, 'Check its CPU and its database.') : good(about, found);
}

const TIMEOUT_MS = 2_000;
/**
 * The time limit for both requests to a core, less than that of the whole check, so that the finding names the core.
 */
const BOTH_WITHIN_MS = 2_500;
const READY = 200;
const NO_PROBE = 404;

/** Checks an address. @param isOnly whether it is the only one */
type Check = (address: CoreAddress, isOnly: boolean) => Promise<CheckResult>;

/** Applies a check to each address of each entry of CORE_URL. */
const lookAtEach = async (urls: readonly string[], look: Check): Promise<CheckResult[]> =>
  (await Promise.all(urls.map((url) => lookAtAll(url, look, urls.length === 1)))).flat();

async function lookAtAll(url: string, look: Check, isOnlyUrl: boolean): Promise<CheckResult[]> {
  try {
    const addresses = await resolveCores(url);
    const isOnly = isOnlyUrl && addresses.length === 1;
    return await Promise.all(addresses.map((address) => look(address, isOnly)));
  } catch (thrown) {
    return [fault(`core ${url}`, `cannot be resolved: ${(thrown as Error).message}`, 'Check CORE_URL and DNS.')];
  }
}

/** Checks whether a core is ready. */
async function probe(address: CoreAddress, isOnly: boolean): Promise<CheckResult> {
  const about = `core ${address.origin}`;
  try {
    const status = (await answerTo(address, '/readyz', TIMEOUT_MS))?.status;
    if (status === READY) return good(about, 'is ready');
    if (status === undefined) return silentCore(about);
    if (status === NO_PROBE && isOnly)
      return warning(
        about,
        `has no /readyz: it returned ${status}`,
        'With several cores, only those whose /readyz returns 200 receive requests.',
      );
    return fault(about, `is not ready: /readyz returned ${status}`, 'Its log shows why.');
  } catch (thrown) {
    const found = `cannot be reached: ${(thrown as Error).message}`;
    return fault(about, found, 'Is it running, and does CORE_URL have its address?');
  }
}

const silentCore = (about: string): CheckResult => unknown(about, 'does not answer', 'Check its CPU and its database.');
