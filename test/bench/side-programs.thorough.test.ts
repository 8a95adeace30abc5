import { expect, test } from 'vitest';
import { startProcess } from '../support/process.ts';

/**
 * These programs call parts of the product directly, so a change there can break them. Their figures are not tested.
 */
test.for([
  ['steps.ts', 'canonical request', 'access log line', 'counters', 'trace, continued'],
  ['body.ts', 'parseJson, an int64', 'NewPet.safeParse'],
])('%s still runs and measures each step', { timeout: 120_000 }, async ([program, ...names]) => {
  const { code, out, err } = await startProcess(process.execPath, [`test/bench/${program}`], { BENCH_ROUNDS: '1' })
    .ended;
  expect([code, err]).toEqual([0, '']);
  for (const name of names) expect(out).toMatch(new RegExp(`^${name} +\\d+\\.\\d\\d µs `, 'm'));
});
