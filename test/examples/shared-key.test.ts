import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { parseApiKey } from '../../gateway/access/credential.ts';
import { startStack } from '../support/stack.ts';
import { patientFetch } from './patient-fetch.ts';

/** Real clients that wait for Retry-After, ten of each kind on one key. */

const WORKERS = 10;
const LIMIT = 240;
const RUN_MS = 5_000;
const run = promisify(execFile);

const stack = await startStack();
await stack.admin('PATCH', '/plans/free', { minute: LIMIT, ban_after: WORKERS, ban_within_seconds: 60 });
const url = `${stack.gateway}/v1/pets`;

const clients: Readonly<Record<string, Send>> = {
  async patientFetch(key) {
    const answer = await patientFetch(url, { headers: { Authorization: `Bearer ${key}` } });
    await answer.arrayBuffer();
    return answer.status;
  },
  async 'curl --retry'(key) {
    const options = [
      '-s',

      '-w',
      '%{http_code}',
      '--retry',
      '5',
      '-H',
      `Authorization: Bearer ${key}`,
    ];
    // With its answers to tries that failed, curl writes their codes too.
    const { stdout } = await run('curl', [...options, url]).catch((fault) =>
      Promise.reject(new Error(`curl ended with ${fault.code}: ${fault.stderr}`)),
    );
    return Number(stdout.slice(-3));
  },
};

type Send = (key: string) => Promise<number>;

test.for<[string, Send]>(Object.entries(clients))(
  '%s: ten workers on one key are served and never banned',
  { timeout: 60_000 },
  async ([, client]) => {
    const key = await stack.issueKey();
    const spent = await Promise.all(
      Array.from({ length: LIMIT }, () => fetch(url, { headers: { Authorization: `Bearer ${key}` } })),
    );
    expect(new Set(spent.map(({ status }) => status))).toEqual(new Set([200]));
    const statuses: number[] = [];
    const end = performance.now() + RUN_MS;
    async function work(): Promise<void> {
      while (performance.now() < end) statuses.push(await client(key));
    }
    await Promise.all(Array.from({ length: WORKERS }, work));
    expect(new Set(statuses)).toEqual(new Set([200]));
    expect(statuses.length).toBeGreaterThan((((LIMIT / 60) * RUN_MS) / 1_000) * 0.8);
    const told = stack.log.filter(({ keyId }) => keyId === parseApiKey(key)?.id);
    expect(told.filter(({ outcome }) => outcome === 'banned')).toEqual([]);
    expect(told.filter(({ status }) => status === 429).length).toBeGreaterThan(WORKERS);
  },
);
