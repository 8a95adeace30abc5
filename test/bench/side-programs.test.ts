import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { test } from 'vitest';

/** They call parts of the product by themselves, so a change there can break them. Their figures are not tested. */
test.concurrent.for([
  ['steps.ts', 'canonical request', 'access log line', 'counters', 'trace, continued'],
  ['body.ts', 'parseJson, an int64', 'NewPet.safeParse'],
])('%s still measures what it names', { timeout: 120_000 }, async ([program, ...names], { expect }) => {
  const { stdout } = await promisify(execFile)(process.execPath, [`test/bench/${program}`]);
  for (const name of names) expect(stdout).toMatch(new RegExp(`^${name} +\\d+\\.\\d\\d µs `, 'm'));
});
