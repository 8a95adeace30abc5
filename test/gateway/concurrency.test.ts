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

/** Drives a limit in simulated time: requests of an open loop, which a core answers as `serve` says. */
class Simulation {
  readonly limit = new ConcurrencyLimit(TIMEOUT_MS, CONNECTIONS);
  shed = 0;
  givenUp = 0;
  #now = 0;
  #due = 0;
  readonly #waiting: { askedAt: number; answerAt: number }[] = [];
  #freeAt = 0;

  /** @param core how long an answer takes, and how many a second there can be */
  run(forMs: number, ratePerSecond: number, core: { latencyMs: number; perSecond: number }): this {
    for (const end = this.#now + forMs; this.#now < end; this.#now++) {
      for (this.#due += ratePerSecond / 1_000; this.#due >= 1; this.#due--) this.#ask(core);
      this.#answer();
    }
    return this;
  }

  #ask({ latencyMs, perSecond }: { latencyMs: number; perSecond: number }): void {
    if (!this.limit.hasRoom) {
      this.shed += 1;
      return;
    }
    this.limit.enter();
    this.#freeAt = Math.max(this.#freeAt, this.#now) + 1_000 / perSecond;
    this.#waiting.push({ askedAt: this.#now, answerAt: this.#freeAt + latencyMs });
  }

  #answer(): void {
    for (let [first] = this.#waiting; first !== undefined; [first] = this.#waiting) {
      const isLate = this.#now - first.askedAt >= TIMEOUT_MS;
      if (first.answerAt > this.#now && !isLate) return;
      if (isLate) this.givenUp += 1;
      this.#waiting.shift();
      this.limit.learn(first.askedAt, this.#now);
      this.limit.leave();
    }
  }
}

const quick = { latencyMs: 2, perSecond: 10_000 };

test('one late answer, or a few, leave the limit where it is', () => {
  const limit = new ConcurrencyLimit(TIMEOUT_MS, CONNECTIONS);
  const most = limit.value;
  for (let count = 0; count < 9; count++) {
    limit.enter();
    limit.learn(0, 5_000 + count);
    limit.leave();
  }
  expect(limit.value).toBe(most);
});

test('three seconds of constant extra latency shed nothing, when they begin, last and end', () => {
  const simulation = new Simulation().run(5_000, 300, quick);
  for (const latencyMs of [3_000, 2, 1_000, 3_000, 2]) simulation.run(15_000, 300, { latencyMs, perSecond: 10_000 });
  expect([simulation.shed, simulation.givenUp]).toEqual([0, 0]);
});

test('slow reads among quick ones do not lower the limit', () => {
  const limit = new ConcurrencyLimit(TIMEOUT_MS, CONNECTIONS);
  for (let at = 0; at < 60_000; at += 10) {
    for (const tookMs of [1, 4_900]) {
      limit.enter();
      limit.learn(at, at + tookMs);
      limit.leave();
    }
  }
  expect(limit.value).toBe(2_048);
});

test.for([1.3, 2, 5])('asked %d times as much as it can do, a core answers all that is let in, in time', (times) => {
  const core = { latencyMs: 2, perSecond: 150 };
  const simulation = new Simulation().run(3_000, 140, core).run(60_000, times * 150, core);
  expect(simulation.givenUp).toBe(0);
  expect(simulation.limit.value).toBeLessThan(800);
  expect(simulation.shed).toBeGreaterThan((times - 1) * 150 * 40);
});

test('a core that answers nothing in time is asked for little, and for as much as ever when it is well again', () => {
  const simulation = new Simulation().run(3_000, 300, quick).run(20_000, 300, { latencyMs: 9_000, perSecond: 10_000 });
  expect(simulation.limit.value).toBeLessThanOrEqual(CONNECTIONS);
  simulation.run(30_000, 300, quick);
  expect(simulation.limit.value).toBe(2_048);
});
