import { describe, expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { startStack } from '../support/stack.ts';
import { thoroughly } from '../support/thorough.ts';
import { RETRYING_CLIENTS, type Work } from './retrying-clients.ts';
import { usedUpKey } from './used-up-key.ts';

/**
 * Tests real clients that respect Retry-After, with ten of each kind on one key. Without THOROUGH=1, only the kind in
 * the examples runs.
 */

const WORKERS = 10;
const LIMIT = 60;
const RUN_MS = thoroughly(30_000, 5_000);
/** Clients that retry without waiting are banned within seconds. A worker that waits gets at most one strike. */
const STRIKES = 2 * WORKERS;
/** At the end of the run, a worker still waits for its last request. */
const LONGEST_WAIT_MS = 60_000;

const stack = await startStack();
const limits = { ban_after: STRIKES, ban_grace_seconds: 0 };
expect((await stack.admin('PATCH', '/plans/free', limits)).status).toBe(200);
const url = `${stack.gateway}/v1/pets`;
const clients = Object.entries(RETRYING_CLIENTS).slice(0, thoroughly(Infinity, 1));

/** The keys by client. They are used up one at a time, so as not to open thousands of connections at once. */
const keys = new Map<string, string>();
for (const [name] of clients) keys.set(name, await usedUpKey(stack, LIMIT));

describe.concurrent('workers on one key', () => {
  test.for<[string, Work]>(clients)(
    'ten workers with %s share a key, are served and are never banned',
    { timeout: RUN_MS + 2 * LONGEST_WAIT_MS },
    async ([name, work]) => {
      const key = keys.get(name) ?? '';
      const end = performance.now() + RUN_MS;
      const statuses = (await Promise.all(Array.from({ length: WORKERS }, () => work(url, key, end)))).flat();
      const lines = stack.log.filter(({ keyId }) => keyId === idOf(key));
      const outcomes = lines.map(({ outcome }) => outcome);
      const count = (outcome: string) => outcomes.filter((other) => other === outcome).length;
      const seconds = (performance.now() - end + RUN_MS) / 1_000;
      process.stdout.write(
        `${name}: ${statuses.length} served, ${count('refused')} refused, ${count('banned')} banned in ${seconds.toFixed(0)} s\n`,
      );
      expect(count('banned')).toBe(0);
      expect(new Set(statuses)).toEqual(new Set([200]));
      expect(statuses.length).toBeGreaterThan((((LIMIT / 60) * RUN_MS) / 1_000) * 0.8);
      // On a busy machine, programs that start a process per request are refused less often.
      expect(count('refused')).toBeGreaterThan(WORKERS / 2);
    },
  );
});
