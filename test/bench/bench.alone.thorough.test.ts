import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { DESCRIPTIONS } from './contenders.ts';

/**
 * Tests that every contender still works: the benchmark checks each one before it measures, and exits with 1 if one
 * fails or a round is invalid. Speed is not tested.
 */

const ROUND = ['--rounds', '1', '--seconds', '1'];
const LIMITERS = Object.keys(DESCRIPTIONS).filter((name) => name !== 'gateway-base');

test("each contender passes the benchmark's checks and serves a day of real traffic", {
  timeout: 300_000,
}, async () => {
  const args = ['test/bench/main.ts', '--scenario', 'day-8,embedded-32', '--only', LIMITERS.join(','), ...ROUND];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  expect(stdout).toContain("a real day's mix");
  expect(stdout).not.toContain('not counted');
});
