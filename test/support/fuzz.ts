import fc from 'fast-check';
import { cleanUp } from './clean-up.ts';
import { thoroughly } from './thorough.ts';

/**
 * How long each fuzzer runs, and its seed. Locally the seed is fixed, in CI it is random. Both can be set, to search
 * longer or to reproduce a fault.
 */
export const FUZZ_SECONDS = Number(process.env.FUZZ_SECONDS ?? thoroughly(10, 3));
export const FUZZ_SEED = Number(process.env.FUZZ_SEED ?? thoroughly(Math.floor(Math.random() * 2 ** 31), 1));

/** A number from 0 up to, but not including, `below`. The sequence is fixed by the seed. */
export type Dice = (below: number) => number;

/** mulberry32: small, fast, and good enough for fuzzing. */
export function dice(seed: number): Dice {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

/** Any character of Unicode. The unit `binary` of fast-check builds a map of all of them, which takes a second. */
export const anyCharacter = fc
  .oneof(fc.integer({ min: 0, max: 0xd7ff }), fc.integer({ min: 0xe000, max: 0x10ffff }))
  .map((code) => String.fromCodePoint(code));

/** Collects unhandled errors in the process. */
export function unhandled(): unknown[] {
  const faults: unknown[] = [];
  const keep = (fault: unknown) => void faults.push(fault);
  process.on('unhandledRejection', keep);
  process.on('uncaughtException', keep);
  cleanUp(() => {
    process.off('unhandledRejection', keep);
    process.off('uncaughtException', keep);
  });
  return faults;
}
