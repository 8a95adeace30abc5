import { expect, test } from 'vitest';
import { AddressAllowance } from '../../gateway/limiter/newcomers.ts';
import { retryAfterSeconds } from '../../gateway/pipeline/client-http.ts';
import { BEGIN, SECOND } from '../support/limiters.ts';

/**
 * The refusal rules also apply to callers without a key. Their connections are closed where a key would be banned.
 */

const ADDRESS = '192.0.2.7';

function allowance() {
  const clock = { now: BEGIN };
  return { clock, addresses: new AddressAllowance(() => clock.now) };
}

test('each refused request from an address gets its place in line, at most fifteen minutes ahead', () => {
  const { clock, addresses } = allowance();
  for (let sent = 0; sent < 60; sent++) expect(addresses.consume(ADDRESS).outcome).toBe('admitted');
  const reported = Array.from({ length: 1_000 }, () => retryAfterSeconds(addresses.consume(ADDRESS)));
  expect(reported).toEqual(reported.map((_, at) => Math.min(at + 1, 900)));
  expect(retryAfterSeconds(addresses.consume('192.0.2.8'))).toBeUndefined();
  // Refilled tokens can be used at once, however long the line is.
  clock.now += 2 * SECOND;
  const outcomes = Array.from({ length: 3 }, () => addresses.consume(ADDRESS).outcome);
  expect(outcomes).toEqual(['admitted', 'admitted', 'refused']);
});

test('an address gets one request a second, also after the clock was set back, and the table of addresses is bounded', () => {
  const { clock, addresses } = allowance();
  const outcome = () => addresses.consume(ADDRESS).outcome;
  for (let sent = 0; sent < 61; sent++) outcome();
  clock.now += SECOND - 1;
  expect(outcome()).toBe('refused');
  clock.now += 1;
  expect([outcome(), outcome()]).toEqual(['admitted', 'refused']);
  // A clock that is set back gives no token, and takes none: the next one is there after the same time.
  for (const back of [3_600, 0.01, 1]) {
    clock.now -= back * SECOND;
    expect([outcome(), addresses.peek(ADDRESS).buckets[0]?.tokens]).toEqual(['refused', 0]);
    clock.now += SECOND;
    expect([outcome(), outcome()]).toEqual(['admitted', 'refused']);
  }
  for (let at = 0; at < 10_000; at++) addresses.consume(`address ${at}`);
  expect(addresses.peek(ADDRESS).buckets[0]?.tokens).toBe(60);
  expect(addresses.peek('address 9999').buckets[0]?.tokens).toBe(59);
});

/** @returns the seconds until the first refusal that closes the connection */
function closedAfter(perMinute: number, seconds: number): number | undefined {
  const { clock, addresses } = allowance();
  for (let sent = 0; sent < (perMinute * seconds) / 60; sent++) {
    clock.now = BEGIN + Math.floor((sent * 60 * SECOND) / perMinute);
    if (addresses.consume(ADDRESS).closesConnection) return Math.round((clock.now - BEGIN) / SECOND);
  }
  return undefined;
}

test.for([
  [600, 336],
  [6_000, 34],
] as const)('at %d requests a minute, connections from an address are closed after %d s', ([perMinute, expected]) => {
  expect(closedAfter(perMinute, 400)).toBe(expected);
});

test('at eight times the limit, connections from an address are never closed', () => {
  expect(closedAfter(480, 7_200)).toBeUndefined();
});

test('an address that has used up its strikes has its connection closed at each refusal until it pauses', () => {
  const { clock, addresses } = allowance();
  const burst = () => Array.from({ length: 400 }, () => addresses.consume(ADDRESS).closesConnection ?? false);
  burst();
  clock.now += 30 * SECOND;
  // 30 requests are admitted, and 240 strikes have expired.
  const closed = burst();
  expect(closed.indexOf(true)).toBe(270);
  expect(closed.slice(270)).toEqual(Array(130).fill(true));
  clock.now += 38 * SECOND;
  expect(burst()).not.toContain(true);
});
