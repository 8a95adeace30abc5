import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { type AdminAddress, AdminError, callAdmin } from '../gateway/operators/cli/admin-client.ts';

/** The demo keys of `npm start`: one per plan, kept in a file that only its owner can read. */

const DEMO_KEYS = [
  { name: 'demo free', plan: 'free' },
  { name: 'demo pro', plan: 'pro' },
  { name: 'demo business', plan: 'business' },
  { name: 'demo enterprise', plan: 'enterprise', minute: 5_000, day: 500_000 },
];

export interface Addresses {
  readonly admin: AdminAddress;
  /** Where clients reach the gateway. */
  readonly gateway: string;
}

/**
 * The demo keys by plan. A key that opens nothing any more, because it was revoked or rotated, is replaced.
 * @throws {AdminError} if the gateway cannot issue keys
 */
export async function demoKeys(file: string, to: Addresses): Promise<Record<string, string>> {
  const kept = await readKept(file);
  for (const demo of DEMO_KEYS) {
    const key = kept[demo.plan];
    if (key === undefined || !(await isThere(key, to)) || !(await opens(key, to)))
      kept[demo.plan] = ((await callAdmin(to.admin, 'POST', '/keys', demo)) as { key: string }).key;
  }
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, `${JSON.stringify(kept, undefined, 2)}\n`, { mode: 0o600 });
  return kept;
}

async function isThere(key: string, { admin }: Addresses): Promise<boolean> {
  try {
    await callAdmin(admin, 'GET', `/keys/${encodeURIComponent(key.slice(3, 15))}`);
    return true;
  } catch (fault) {
    if (fault instanceof AdminError && fault.status === 404) return false;
    throw fault;
  }
}

/** Asks where the key stands, which costs it nothing. Without an answer, as from a certificate of one's own, it is kept. */
async function opens(key: string, { gateway }: Addresses): Promise<boolean> {
  const headers = { authorization: `Bearer ${key}` };
  const answer = await fetch(`${gateway}/v1/limits`, { headers }).catch(() => undefined);
  await answer?.body?.cancel();
  return answer?.status !== 401;
}

async function readKept(file: string): Promise<Record<string, string>> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as Record<string, string>;
  } catch {
    return {};
  }
}
