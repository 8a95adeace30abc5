import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { cleanUp } from '../support/clean-up.ts';
import { startProcess } from '../support/process.ts';
import { temporaryFolder } from '../support/stack.ts';

/** Tests .ci/run and .ci/containers with a fake npm that prints what a run would print. */

const WELL = 'echo "23 passed, 0 failed"';
const TESTS = 'echo "2800 passed, 0 failed, 1 skipped"; echo "% of lines"';
/** Ignores SIGTERM, and leaves behind a process that keeps the standard output open. */
const HANGS = `setsid sleep 600 & echo $! > "$LEFT"; trap '' TERM; while :; do sleep 1; done`;

/**
 * Resolves once no process has the program's output open.
 * @param says the shell commands that run in place of the tests and of the container tests
 */
async function run(command: string, says: { tests?: string; containers?: string }, ...args: string[]) {
  const folder = await temporaryFolder();
  const npm = `#!/bin/sh
case "$*" in
  ci) ;;
  test) ${says.tests ?? TESTS} ;;
  'run -s test:containers') ${says.containers ?? WELL} ;;
  *) exit 9 ;;
esac
`;
  await writeFile(join(folder, 'npm'), npm, { mode: 0o755 });
  const left = join(folder, 'left');
  const env = { PATH: `${folder}:${process.env.PATH}`, LEFT: left };
  return { ...(await startProcess('bash', [command, ...args], env).ended), left };
}

test.for<readonly [string, string, string]>([
  ['that pass', WELL, '23 passed, 0 failed in 0 min\n'],
  [
    'that fail',
    'printf "failed: a > b\\n  a reason\\n22 passed, 1 failed\\n"; exit 1',
    '22 passed, 1 failed in 0 min\ncontainers: failed: a > b\ncontainers:   a reason\n',
  ],
  [
    'without an engine',
    'printf "\\n0 passed, 0 failed, 23 skipped\\nNo containers were tested: the engine needs root.\\n"',
    'not tested: the engine needs root.\n',
  ],
  ['that cannot start', 'echo "npm error code"; exit 3', 'no count, ended with 3: npm error code\n'],
])('container tests %s are reported and do not affect the result', async ([, containers, reported]) => {
  expect(await run('.ci/containers', { containers }, '60')).toMatchObject({
    code: 0,
    out: `containers: ${reported}`,
    err: '',
  });
});

test('container tests that hang are killed, and nothing waits for the processes that they leave behind', async () => {
  const { code, out, left } = await run('.ci/containers', { containers: HANGS }, '3', '1');
  const pid = Number(await readFile(left, 'utf8'));
  cleanUp(() => process.kill(pid));
  expect([code, out]).toEqual([0, 'containers: gave up after 3 s\n']);
  // The process left behind still runs.
  expect(process.kill(pid, 0)).toBe(true);
});

test('container tests are not started when no time is left', async () => {
  expect(await run('.ci/containers', {}, '-5')).toMatchObject({
    code: 0,
    out: 'containers: not tested, there is no time left\n',
  });
});

test('a run reports the container tests before its last line, which sums up its own tests', async () => {
  for (const [containers, reported] of [
    [WELL, '23 passed, 0 failed in 0 min'],
    ['echo "22 passed, 1 failed"; exit 1', '22 passed, 1 failed in 0 min'],
  ] as const) {
    const { code, out } = await run('.ci/run', { containers });
    expect([code, out]).toEqual([
      0,
      `2800 passed, 0 failed, 1 skipped\n% of lines\ncontainers: ${reported}\n2800 passed, 0 failed, 1 skipped\n`,
    ]);
  }
});

test('a run whose tests fail exits with their status and starts no container tests', async () => {
  const tests = 'printf "failed: a > b\\n  a reason\\n2799 passed, 1 failed\\n"; exit 4';
  const { code, out } = await run('.ci/run', { tests });
  expect(code).toBe(4);
  const reported = 'failed: a > b\n  a reason\n2799 passed, 1 failed\n';
  expect(out).toBe(`${reported}${reported}2799 passed, 1 failed\n`);
  const silent = await run('.ci/run', { tests: 'exit 5' });
  expect([silent.code, silent.out]).toEqual([5, '0 passed, 1 failed\n']);
});
