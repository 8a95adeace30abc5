import { expect, test } from 'vitest';
import { describeApi } from '../../gateway/reference/openapi.ts';
import { idOf } from '../support/api-key.ts';
import { post } from '../support/http.ts';
import { type Ended, startProcess } from '../support/process.ts';
import { LANGUAGES, runSample } from '../support/samples.ts';
import { startStack } from '../support/stack.ts';
import { thoroughly } from '../support/thorough.ts';
import { usedUpKey } from './used-up-key.ts';

const stack = await startStack();
const pets = `${stack.gateway}/v1/pets`;

/** The next token is available after ten seconds, which leaves enough time to start a process. */
const MINUTE = 6;

interface Run {
  readonly ended: Ended;
  /** The statuses of the gateway's responses to the example, in order. */
  readonly statuses: () => unknown[];
}

async function run(command: string, example: string): Promise<Run> {
  const key = await usedUpKey(stack, MINUTE);
  const ended = await startProcess(command, [example], { STORE_URL: stack.gateway, API_KEY: key }).ended;
  const statuses = () => stack.log.filter(({ keyId }) => keyId === idOf(key)).map(({ status }) => status);
  return { ended, statuses: () => statuses().slice(MINUTE) };
}

await post(pets, { name: 'Rex', categoryId: 1 }, { key: await stack.issueKey() });

/** The examples run in parallel, because each of them waits. */
const runs = await Promise.all([
  run('sh', 'test/examples/curl.sh'),
  run(process.execPath, 'test/examples/fetch.ts'),
  run(process.execPath, 'test/examples/undici.ts'),
  run(process.execPath, 'test/examples/generated-client.ts'),
]);

test.for(['curl', 'fetch', 'undici', 'a generated client'].map((name, at) => [name, runs[at] as Run] as const))(
  '%s waits for Retry-After when it is refused, and then gets its response',
  async ([, { ended, statuses }]) => {
    expect(ended).toMatchObject({ code: 0, out: expect.stringContaining('Rex') });
    // There is exactly one refusal: a client that retries too early would get more.
    await expect.poll(statuses).toEqual([429, 200]);
  },
);

test.for([
  ['curl', 'sh', 'test/examples/limits-curl.sh', /"name":"test","plan":"free","minute":\{"limit":6,"remaining":[0-6],/],
  ['fetch', process.execPath, 'test/examples/limits-fetch.ts', /^free: \d of 6 a minute, 9999\d of 100000 a day$/m],
] as const)('%s shows the limit status of a key that would be refused', async ([, command, example, reported]) => {
  const { ended, statuses } = await run(command, example);
  expect(ended).toMatchObject({ code: 0, out: expect.stringMatching(reported) });
  await expect.poll(statuses).toEqual([200]);
});

const operations = Object.values(describeApi().paths).flatMap((path) => Object.values(path));

test('the samples of every operation run unchanged, with the key from the environment', async () => {
  const key = await stack.issueKey();
  expect(operations.length).toBeGreaterThanOrEqual(5);
  for (const [at, { operationId, 'x-codeSamples': samples = [] }] of operations.entries()) {
    expect(samples.map(({ label }) => label)).toEqual(LANGUAGES);
    // The languages take turns, and in CI each operation runs in all of them.
    const turns = samples.filter((_, language) => (language - at) % thoroughly(1, LANGUAGES.length) === 0);
    for (const sample of turns) {
      expect(sample.source).not.toMatch(/as_/);
      const out = await runSample(sample, stack.gateway, key);
      expect([operationId, sample.label, out]).toEqual([
        operationId,
        sample.label,
        expect.stringMatching(/\b20[01]\b/),
      ]);
    }
  }
});
