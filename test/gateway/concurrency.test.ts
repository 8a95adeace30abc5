import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type Caller, LoadShedder, type Slot } from '../../gateway/pipeline/overload.ts';
import { ConcurrencyLimit, QueueLimit } from '../../gateway/upstream/concurrency-limit.ts';
import { Core } from '../../gateway/upstream/core.ts';
import { FairShare, type Waiter } from '../../shared/fair-share.ts';
import { generator } from '../support/fleets.ts';
import { FUZZ_SEED } from '../support/fuzz.ts';

const TIMEOUT_MS = 5_000;

/** Returns a shedder whose limit can change, and what callers do with its slots, by name. */
function shedderWith(limit: number) {
  const callers: Record<string, Caller> = {};
  const callerOf = (name: string): Caller => (callers[name] ??= { inFlight: 0 });
  const shedder = new LoadShedder(() => self.limit);
  const self = {
    limit,
    hasRoomFor: (name: string) => shedder.hasRoomFor(callerOf(name)),
    take(name: string): Slot | undefined {
      const slot = shedder.slot();
      return slot.take(callerOf(name)) ? slot : undefined;
    },
    /** Takes all slots that the caller can get. */
    fill(name: string): Slot[] {
      const slots: Slot[] = [];
      for (let slot = self.take(name); slot !== undefined; slot = self.take(name)) slots.push(slot);
      return slots;
    },
  };
  return self;
}

test('a single caller gets half of the slots, the second one a third, and the third one a quarter', () => {
  const { fill, hasRoomFor } = shedderWith(1_000);
  const first = fill('first');
  expect(first).toHaveLength(500);
  expect(fill('second')).toHaveLength(333);
  expect(fill('third')).toHaveLength(250);
  expect(hasRoomFor('first')).toBe(false);
  for (const slot of first) slot.release();
  expect(fill('third').length).toBeGreaterThan(80);
});

test('a large caller gets slots that many small callers leave unused', () => {
  const { fill, take } = shedderWith(1_000);
  for (let at = 0; at < 500; at++) take(`small ${at}`);
  expect(fill('large')).toHaveLength(250);
});

test('after the limit has fallen, callers below their share are admitted until there are as many as the limit', () => {
  const shedder = shedderWith(1_000);
  const [first] = shedder.fill('first');
  shedder.limit = 400;
  expect(shedder.hasRoomFor('first')).toBe(false);
  expect(shedder.fill('second')).toHaveLength(133);
  let others = 0;
  while (others < 1_000 && shedder.take(`other ${others}`)) others++;
  expect(others).toBe(400 - 2);
  first?.release();
  expect(shedder.hasRoomFor('other 0')).toBe(false);
});

test('a caller with few requests in progress is admitted while another has many times the limit', () => {
  const shedder = shedderWith(1_000);
  shedder.fill('greedy');
  shedder.limit = 32;
  expect(shedder.hasRoomFor('greedy')).toBe(false);
  expect(shedder.fill('modest').length).toBeGreaterThan(2);
});

test('a slot that is released twice counts as released once', () => {
  const { fill, take } = shedderWith(10);
  for (let round = 0; round < 1_000; round++) {
    const slots = [take('one'), take('another')];
    for (const slot of [...slots, ...slots]) slot?.release();
  }
  expect(fill('one')).toHaveLength(5);
});

test('clients that wait for a core in turns may each have an equal part of its limit', () => {
  const line = new FairShare(1);
  const limit = new QueueLimit(TIMEOUT_MS, line);
  const alone = limit.perClient;
  for (const client of ['served', 'first', 'second', 'third', 'third']) line.take({ client, start() {} });
  expect(limit.perClient).toBe(alone / 4);
});

/** Runs a limit in simulated time: requests arrive at random, and a simulated core answers them in order. */
class Simulation {
  readonly limit = new ConcurrencyLimit(TIMEOUT_MS);
  readonly #random = generator(1);
  shed = 0;
  givenUp = 0;
  answered = 0;
  /** The longest time that a request took. */
  longestMs = 0;
  #now = 0;
  #nextAt = 0;
  readonly #waiting: { askedAt: number; answerAt: number }[] = [];
  #freeAt = 0;

  /** @param core how long a response takes, and the maximum number of responses a second */
  run(forMs: number, ratePerSecond: number, core: { latencyMs: number; perSecond: number }): this {
    for (const end = this.#now + forMs; this.#now < end; this.#now++) {
      for (; this.#nextAt <= this.#now; this.#nextAt -= (Math.log(1 - this.#random()) * 1_000) / ratePerSecond)
        this.#ask(core);
      this.#answer();
    }
    return this;
  }

  /** Resets the counters. */
  count(): this {
    return Object.assign(this, { shed: 0, givenUp: 0, answered: 0, longestMs: 0 });
  }

  #ask({ latencyMs, perSecond }: { latencyMs: number; perSecond: number }): void {
    if (!this.limit.hasRoom) {
      this.shed += 1;
      return;
    }
    this.limit.enter(this.#now);
    this.#freeAt = Math.max(this.#freeAt, this.#now) + 1_000 / perSecond;
    this.#waiting.push({ askedAt: this.#now, answerAt: this.#freeAt + latencyMs });
  }

  #answer(): void {
    for (let [first] = this.#waiting; first !== undefined; [first] = this.#waiting) {
      const isLate = this.#now - first.askedAt >= TIMEOUT_MS;
      if (first.answerAt > this.#now && !isLate) return;
      if (isLate) this.givenUp += 1;
      else this.answered += 1;
      this.longestMs = Math.max(this.longestMs, this.#now - first.askedAt);
      this.#waiting.shift();
      this.limit.noteAnswer(first.askedAt, this.#now);
      this.limit.leave();
    }
  }
}

const quick = { latencyMs: 2, perSecond: 10_000 };

function answer(limit: ConcurrencyLimit, askedAt: number, now: number): void {
  limit.enter(askedAt);
  limit.noteAnswer(askedAt, now);
  limit.leave();
}

test('a few late responses do not change the limit', () => {
  const limit = new ConcurrencyLimit(TIMEOUT_MS);
  const most = limit.value;
  for (let count = 0; count < 9; count++) {
    answer(limit, 0, 5_000 + count);
  }
  expect(limit.value).toBe(most);
});

test('slow reads among fast ones do not lower the limit', () => {
  const limit = new ConcurrencyLimit(TIMEOUT_MS);
  for (let at = 0; at < 60_000; at += 10) {
    for (const tookMs of [1, 4_900]) {
      answer(limit, at, at + tookMs);
    }
  }
  expect(limit.value).toBe(2_048);
});

test('many responses that are late at the same moment do not lower the limit while others are on time', () => {
  const limit = new ConcurrencyLimit(TIMEOUT_MS);
  for (let now = 10_000; now < 40_000; now += 100) {
    answer(limit, now - 2, now);
    for (let count = 0; count < 32; count++) answer(limit, now - TIMEOUT_MS, now + 50);
  }
  expect(limit.value).toBe(2_048);
});

test.for([15, 50, 300])('higher latency in a core with %d requests a second does not count as a queue', (perSecond) => {
  const simulation = new Simulation().run(15_000, perSecond, quick);
  for (const latencyMs of [700, 2, 3_000, 2]) simulation.run(20_000, perSecond, { latencyMs, perSecond: 10_000 });
  expect([simulation.shed, simulation.givenUp]).toEqual([0, 0]);
});

const overloads = [15, 150].flatMap((perSecond) => [1.3, 2, 5, 10].map((times) => [perSecond, times] as const));

test.for(overloads)(
  'a core that can send %d responses a second keeps that rate at %d times the load, and responds in time',
  ([perSecond, times]) => {
    const core = { latencyMs: 2, perSecond };
    const simulation = new Simulation().run(5_000, 0.8 * perSecond, core).run(15_000, times * perSecond, core);
    simulation.count().run(300_000, times * perSecond, core);
    expect(simulation.givenUp).toBe(0);
    expect(simulation.answered).toBeGreaterThan(0.97 * 300 * perSecond);
    expect(simulation.longestMs).toBeLessThan(3_000);
  },
);

test.for(overloads.filter(([, times]) => times >= 5))(
  'the first limit of a core that was idle is near its %d responses a second, at %d times the load',
  ([perSecond, times]) => {
    const simulation = new Simulation();
    const most = simulation.limit.value;
    while (simulation.limit.value === most) simulation.run(10, times * perSecond, { latencyMs: 2, perSecond });
    expect(simulation.limit.value / perSecond).toBeGreaterThan(0.8);
    expect(simulation.limit.value / perSecond).toBeLessThan(1.2);
  },
);

test('a pause of a core whose queue shrinks does not keep its limit low', () => {
  const limit = new ConcurrencyLimit(TIMEOUT_MS);
  const waiting: number[] = [];
  let answerAt = 67;
  let lowest = limit.value;
  for (let now = 0; now < 2_500; now++) {
    if (now < 400 && now % 6 === 0) {
      limit.enter(now);
      waiting.push(now);
    }
    if (now < answerAt) continue;
    limit.noteAnswer(waiting.shift() as number, now);
    limit.leave();
    lowest = Math.min(lowest, limit.value);
    answerAt += now > 600 && now < 670 ? 450 : 67;
  }
  expect(lowest).toBeLessThan(11);
  expect(limit.value).toBeGreaterThan(12);
});

test('a read is not sent twice merely to check a core that has reached half of its limit', () => {
  const core = new Core(
    { origin: 'http://core', url: 'http://core', connect: {} },
    { timeoutMs: TIMEOUT_MS, concurrency: undefined },
  );
  expect(core.mayProbe(1_000)).toBe(true);
  while (core.limit.inFlight < core.limit.value / 2) core.limit.enter(2_000);
  expect(core.mayProbe(2_000)).toBe(false);
});

test('a core that times out gets few requests, and gets as many as before once it recovers', () => {
  const simulation = new Simulation().run(3_000, 300, quick).run(20_000, 300, { latencyMs: 9_000, perSecond: 10_000 });
  expect(simulation.limit.value).toBeLessThanOrEqual(64);
  simulation.run(30_000, 300, quick);
  expect(simulation.limit.value).toBe(2_048);
});

const PLACES = 8;

/** Takes and releases places for clients, and records who runs and who waits. */
function share(places: number) {
  const fair = new FairShare(places);
  const running: Waiter[] = [];
  const waiting = new Set<Waiter>();
  return {
    fair,
    running,
    waiting,
    held: (client: string) => running.filter((one) => one.client === client).length,
    take(client: string) {
      const waiter: Waiter = {
        client,
        start() {
          expect(waiting.delete(waiter)).toBe(true);
          running.push(waiter);
        },
      };
      waiting.add(waiter);
      fair.take(waiter);
    },
    release(at: number) {
      const [ended] = running.splice(at % running.length, 1);
      if (ended !== undefined) fair.release(ended.client);
    },
    cancel(at: number) {
      const waiter = [...waiting][at % waiting.size];
      if (waiter === undefined) return;
      waiting.delete(waiter);
      expect(fair.cancel(waiter)).toBe(true);
    },
  };
}

const step = fc.oneof(
  { weight: 3, arbitrary: fc.record({ what: fc.constant('take' as const), at: fc.nat(5) }) },
  { weight: 2, arbitrary: fc.record({ what: fc.constant('release' as const), at: fc.nat(100) }) },
  { weight: 1, arbitrary: fc.record({ what: fc.constant('cancel' as const), at: fc.nat(100) }) },
);

test('the number of places is never exceeded, and no client waits while it may take another place', () => {
  const keepsCount = fc.property(fc.array(step, { maxLength: 200, size: 'max' }), (steps) => {
    const places = share(PLACES);
    for (const { what, at } of steps) {
      if (what === 'take') places.take(`client ${at}`);
      else places[what](at);
      expect(places.running.length).toBeLessThanOrEqual(PLACES);
      expect(places.fair.waiting).toBe(places.waiting.size);
      const taken = places.running.length;
      const waiting = [...places.waiting].map(({ client }) => places.held(client));
      expect(Math.min(PLACES, ...waiting)).toBeGreaterThanOrEqual(PLACES - taken);
    }
  });
  fc.assert(keepsCount, { seed: FUZZ_SEED, numRuns: 300 });
});

test('a client gets at most half of the places, and a new client gets one immediately', () => {
  const places = share(64);
  for (const client of ['a', 'b', 'c', 'd', 'e']) for (let asked = 0; asked < 64; asked++) places.take(client);
  expect(places.held('a')).toBe(32);
  places.take('other');
  expect(places.held('other')).toBe(1);
});

test('waiting clients take turns', () => {
  const places = share(1);
  for (const client of ['a', 'a', 'a', 'b', 'b', 'c']) places.take(client);
  const order: string[] = [];
  while (places.running.length > 0) {
    order.push(places.running[0]?.client ?? '');
    places.release(0);
  }
  expect(order).toEqual(['a', 'a', 'b', 'c', 'a', 'b']);
});
