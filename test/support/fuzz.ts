import { thoroughly } from './thorough.ts';

/** How long each fuzzer runs, and from which seed: both can be given, to search for longer, or to see a fault again. */
export const FUZZ_SECONDS = Number(process.env.FUZZ_SECONDS ?? thoroughly(60, 15));
export const FUZZ_SEED = Number(process.env.FUZZ_SEED ?? Math.floor(Math.random() * 2 ** 31));

/** A number from 0 up to, but not including, `below`; the same for the same seed, in the same order. */
export type Dice = (below: number) => number;

/** mulberry32: small, fast, and good enough to wander about with. */
export function dice(seed: number): Dice {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

/** What a process says when something failed that nobody was waiting for. */
export function unhandled(): unknown[] {
  const faults: unknown[] = [];
  const keep = (fault: unknown) => void faults.push(fault);
  process.on('unhandledRejection', keep);
  process.on('uncaughtException', keep);
  return faults;
}
