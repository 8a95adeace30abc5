import fc from 'fast-check';
import { expect, test } from 'vitest';
import { FairShare, type Waiter } from '../../shared/fair-share.ts';
import { FUZZ_SEED } from '../support/fuzz.ts';

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
      for (const { client } of places.waiting) expect(places.held(client)).toBeGreaterThanOrEqual(PLACES - taken);
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
