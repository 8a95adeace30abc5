import { Agent } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { cleanUp } from '../support/clean-up.ts';
import { send } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { startStack } from '../support/stack.ts';
import { fact, TIMED } from '../support/timed.ts';

/** The refusal rules over HTTP in real time, with a limit of 300 requests a minute. */

const { url: redisUrl } = await emptyDatabase();
const A_MINUTE = 300;
const RUN_MS = 60_000;
/** Fewer strikes than the default of 1,500, so that clients can reach them even on a busy machine. */
const HELD = 500;
/** The pause after a refusal: 16 clients with it send several times as many requests as strikes expire. */
const HAMMER_EVERY_MS = 60;
const GRACE_S = 30;

interface Seen {
  readonly at: number;
  readonly status: number;
  readonly code: string | undefined;
}

/** The time at which these refusals should have caused a ban: strikes expire at eight times the limit. */
function bannedAt(refusals: readonly number[]): number {
  let [strikes, last, fullAt] = [0, 0, Infinity];
  for (const at of refusals.toSorted((a, b) => a - b)) {
    strikes = Math.max(0, strikes - ((at - last) * 8 * A_MINUTE) / 60);
    last = at;
    if (strikes === 0) fullAt = Infinity;
    if (strikes + 1 > HELD) {
      fullAt = Math.min(fullAt, at);
      if (at - fullAt >= GRACE_S) return at;
    }
    strikes = Math.min(strikes + 1, HELD);
  }
  return Infinity;
}

// Started outside the tests, because a stack that a concurrent test starts is stopped when that test ends.
const [embedded, shared, keyless] = await Promise.all([
  startStack(),
  startStack({ REDIS_URL: redisUrl, REDIS_TIMEOUT_MS: '5000' }),
  startStack(),
]);
for (const stack of [embedded, shared])
  expect(await stack.admin('PATCH', '/plans/free', { ban_after: HELD })).toMatchObject({ status: 200 });
const agent = new Agent({ keepAlive: true });
cleanUp(() => agent.destroy());

test.concurrent.for([
  ['the embedded limiter', embedded],
  ['Redis', shared],
] as const)(
  'with %s, clients that respect Retry-After or send at most eight times the limit are never banned, and others are',
  { ...TIMED, timeout: 3 * RUN_MS },
  async ([, stack]) => {
    const limits = { minute: A_MINUTE, day: 1_000_000 };
    const [polite, steady, hammered] = await Promise.all(Array.from({ length: 3 }, () => stack.issueKey(limits)));
    const begun = performance.now();
    const isOver = () => performance.now() > begun + RUN_MS;

    async function ask(key: string | undefined, seen: Seen[]): Promise<number> {
      const { status, json, headers } = await send(`${stack.gateway}/v1/pets`, { key: key as string });
      seen.push({ at: performance.now() - begun, status, code: (json as { code?: string }).code });
      return status === 429 ? Number(headers['retry-after']) : 0;
    }
    const [ofPolite, ofSteady, ofHammer]: [Seen[], Seen[], Seen[]] = [[], [], []];
    const waits = async () => {
      while (!isOver()) await sleep((await ask(polite, ofPolite)) * 1_000);
    };
    /** Sends eight times the limit. */
    const goesOn = async () => {
      const asked: Promise<unknown>[] = [];
      for (let sent = 0; !isOver(); sent++) {
        asked.push(ask(steady, ofSteady));
        await sleep(Math.max(0, begun + (sent + 1) * (60_000 / (8 * A_MINUTE)) - performance.now()));
      }
      await Promise.all(asked);
    };
    const hammers = async () => {
      for (; ofHammer.at(-1)?.code !== 'key_banned'; await sleep(HAMMER_EVERY_MS)) await ask(hammered, ofHammer);
    };
    await Promise.all([...Array.from({ length: 20 }, waits), goesOn(), ...Array.from({ length: 16 }, hammers)]);

    const count = (seen: readonly Seen[], status: number) =>
      seen.filter((one) => one.status === status && one.at <= RUN_MS).length;
    const banned = (seen: readonly Seen[]) => seen.find(({ code }) => code === 'key_banned');
    // A full bucket and its refill, less the last second's, because a client may use a token up to a second late.
    const most = A_MINUTE + (A_MINUTE / 60_000) * (RUN_MS - 1_000);
    const share = count(ofPolite, 200) / most;
    const refused = ofHammer.filter(({ status }) => status === 429).map(({ at }) => at / 1_000);
    const [first = 0, end = 0] = [refused[0], refused.at(-1)];
    // Answers arrive after their decisions, so the ban computed from their times may be a little late.
    const expected = Math.min(bannedAt(refused), end + 1);
    const perSecond = refused.length / (end - first);
    process.stdout.write(
      `${count(ofPolite, 200)} of ${most.toFixed(0)} requests from patient clients were served; a client with ${perSecond.toFixed(0)} refusals a second was banned ${(end - first).toFixed(1)} s after its first refusal (by the rule: ${(expected - first).toFixed(1)} s)\n`,
    );
    await fact(() => expect([banned(ofPolite), banned(ofSteady)]).toEqual([undefined, undefined]));
    expect(share).toBeGreaterThan(0.983);
    await fact(() => expect(count(ofPolite, 200)).toBeLessThanOrEqual(2 * A_MINUTE));
    expect(count(ofSteady, 200) / most).toBeGreaterThan(0.983);
    await fact(() => expect(end - first).toBeGreaterThanOrEqual(GRACE_S));
    // On a busy machine, a refusal may be sent seconds after its decision.
    expect(Math.abs(end - expected)).toBeLessThan(3);
  },
);

test.concurrent('an aggressive client without a key has its connections closed after the grace period', {
  timeout: 3 * RUN_MS,
}, async () => {
  const begun = performance.now();
  const seen: { at: number; isClosed: boolean }[] = [];
  let agent = new Agent({ keepAlive: true });
  while (performance.now() - begun < RUN_MS && !seen.at(-1)?.isClosed) {
    const { headers } = await send(`${keyless.gateway}/v1/pets`, { agent });
    seen.push({ at: (performance.now() - begun) / 1_000, isClosed: headers.connection === 'close' });
    // Opens a new connection before RefusalPacing closes this one, which it does after a hundred delayed refusals.
    if (seen.length % 90 === 0) {
      agent.destroy();
      agent = new Agent({ keepAlive: true });
    }
    await sleep(10);
  }
  expect(seen.at(-1)?.isClosed).toBe(true);
  expect(seen.at(-1)?.at).toBeGreaterThan(GRACE_S);
});
