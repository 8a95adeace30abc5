import { expect, test } from 'vitest';
import { MINUTE, SECOND } from '../../gateway/limiter/bucket.ts';
import { credentialOf } from '../../gateway/limiter/credential.ts';
import { decide } from '../../gateway/limiter/decide.ts';
import { isTooSmall } from '../../gateway/limiter/estimates.ts';
import { FRESH, type KeyRecord, type KeyState } from '../../gateway/limiter/key-record.ts';
import { DEFAULT_PLANS } from '../../gateway/limiter/plans.ts';
import { BEGIN } from '../support/limiters.ts';
import { secretWith } from '../support/secrets.ts';

/** Simulates the line of a key. Its length decides whether the key's limit is reported as too low for its clients. */

const DIGEST = 'a'.repeat(64);
const CREDENTIAL = credentialOf('', DIGEST);
const RECORD: KeyRecord = { plan: 'free', name: '', secrets: [secretWith(DIGEST)], createdAt: 0, minute: 60, day: 1e9 };

/**
 * Simulates workers that send requests without a pause and respect Retry-After.
 * @param isAtWork whether workers continue this many minutes after the start
 * @returns for each minute, whether the limit is reported as too low, and the length of the line in seconds
 */
function run(workers: number, minutes: number, isAtWork = (_sinceMinutes: number) => true) {
  let state: KeyState = FRESH;
  const next = Array.from({ length: workers }, (_, at) => BEGIN + at * 1_000);
  const seen: { isSaid: boolean; seconds: number }[] = [];
  for (let minute = 1; minute <= minutes; minute++) {
    for (const end = BEGIN + minute * MINUTE; ; ) {
      const first = next.indexOf(Math.min(...next));
      const now = next[first] ?? Infinity;
      if (now >= end) break;
      const decided = decide(RECORD, state, CREDENTIAL, DEFAULT_PLANS[RECORD.plan], now);
      state = decided.state ?? state;
      const { outcome, retryAt = 0 } = decided.verdict as { outcome: string; retryAt?: number };
      const isServed = outcome === 'admitted' && !isAtWork((now - BEGIN) / MINUTE);
      next[first] = isServed ? Infinity : outcome === 'admitted' ? now + SECOND / 10 : retryAt;
    }
    const at = BEGIN + minute * MINUTE;
    seen.push({ isSaid: isTooSmall(state, at), seconds: Math.max(0, (state.refusals.lineUntil - at) / SECOND) });
  }
  return seen;
}

test('the limit of a key with a line of three minutes is reported as too low after ten minutes, not before', () => {
  const seen = run(240, 30);
  const said = seen.map(({ isSaid }) => isSaid);
  expect(said.slice(0, 10)).toEqual(Array(10).fill(false));
  expect(said.slice(12)).toEqual(Array(18).fill(true));
  expect(seen.slice(1).every(({ seconds }) => seconds > 150)).toBe(true);
});

test('a key with more clients than places in its line is reported', () => {
  expect(run(1_500, 14).at(-1)).toMatchObject({ isSaid: true });
});

test('a key with a short line, a single burst, or clients that have stopped is not reported', () => {
  expect(run(45, 30).filter(({ isSaid }) => isSaid)).toEqual([]);
  expect(run(500, 20, () => false).filter(({ isSaid }) => isSaid)).toEqual([]);
  const gone = run(240, 30, (minutes) => minutes < 20);
  expect(gone.map(({ isSaid }) => isSaid).slice(17, 20)).toEqual([true, true, true]);
  expect(gone.at(-1)).toEqual({ isSaid: false, seconds: 0 });
});
