import { expect, test } from 'vitest';
import { Admission } from '../../gateway/admission.ts';
import { ConcurrencyLimit } from '../../gateway/upstream/concurrency-limit.ts';

const TIMEOUT_MS = 5_000;
const CONNECTIONS = 64;

const proven = (client: string) => ({ client, isProven: true });

/** How many requests of a client are let in at once. */
function fill(admission: Admission, client: string): number {
  let count = 0;
  while (admission.enter(proven(client))) count += 1;
  return count;
}

test('a client alone gets half; one that comes on top as much as is then left for others, or an equal share', () => {
  const admission = new Admission(() => 1_000);
  expect(fill(admission, 'first')).toBe(500);
  expect(fill(admission, 'second')).toBe(334);
  expect(fill(admission, 'third')).toBe(250);
  expect(admission.enter(proven('first'))).toBe(false);
  for (let left = 0; left < 500; left++) admission.leave(proven('first'));
  expect(fill(admission, 'third')).toBeGreaterThan(80);
});

test('many who hold little keep nobody from what is free', () => {
  const admission = new Admission(() => 1_000);
  for (let at = 0; at < 500; at++) admission.enter(proven(`small ${at}`));
  expect(fill(admission, 'large')).toBe(250);
});

test('who holds less than a share finds room even where the limit fell, up to twice the limit in all', () => {
  let limit = 1_000;
  const admission = new Admission(() => limit);
  fill(admission, 'first');
  limit = 400;
  expect(admission.enter(proven('first'))).toBe(false);
  expect(fill(admission, 'second')).toBe(134);
  const others = Array.from({ length: 400 }, (_, at) => admission.enter(proven(`other ${at}`)));
  expect(others.indexOf(false)).toBe(800 - 500 - 134);
  admission.leave(proven('first'));
  expect(admission.enter(proven('other 399'))).toBe(true);
});

test('what has left leaves nothing behind', () => {
  const admission = new Admission(() => 10);
  for (let round = 0; round < 1_000; round++) {
    expect(admission.enter(proven('one'))).toBe(true);
    expect(admission.enter(proven('another'))).toBe(true);
    admission.leave(proven('one'));
    admission.leave(proven('another'));
  }
  expect(fill(admission, 'one')).toBe(5);
});

/** A limit with so much under way. */
function limitWith(inFlight: number): ConcurrencyLimit {
  const limit = new ConcurrencyLimit(TIMEOUT_MS, CONNECTIONS);
  limit.inFlight = inFlight;
  return limit;
}

test('answers in time leave the limit where it is; a late one lowers it to three quarters of what is under way', () => {
  const limit = limitWith(1_000);
  const most = limit.value;
  limit.learn(0, 499);
  expect(limit.value).toBe(most);
  limit.learn(1, 501);
  expect(limit.value).toBe(750);
});

test('what was asked before the limit was lowered does not lower it again; what was asked since does', () => {
  const limit = limitWith(1_000);
  limit.learn(0, 600);
  for (let asked = 1; asked <= 600; asked++) limit.learn(asked, 1_200);
  expect(limit.value).toBe(750);
  limit.inFlight = 700;
  limit.learn(601, 1_201);
  expect(limit.value).toBe(525);
});

test('a core that takes its time, with no queue in front of it, is not held back until answers take half the time limit', () => {
  const limit = limitWith(60);
  for (let at = 0; at < 100_000; at += 1_000) limit.learn(at, at + 2_000);
  expect(limit.value).toBe(2 * CONNECTIONS);
  limit.learn(200_000, 202_500);
  expect(limit.value).toBe(45);
  limit.inFlight = 2;
  limit.learn(300_000, 305_000);
  expect(limit.value).toBe(32);
});

test('every answer in time raises the limit, up to what it was', () => {
  const limit = limitWith(8);
  const most = limit.value;
  limit.learn(0, 5_000);
  limit.learn(6_000, 6_001);
  expect(limit.value).toBe(2 * CONNECTIONS + 1);
  for (let answers = 0; answers < most; answers++) limit.learn(7_000, 7_001);
  expect(limit.value).toBe(most);
});
