import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { type CodeSample, SAMPLE_ORIGIN } from '../../gateway/reference/openapi.ts';
import { post } from '../support/http.ts';
import { ROOT } from '../support/process.ts';
import { startStack } from '../support/stack.ts';

const run = promisify(execFile);
const description = JSON.parse(readFileSync(join(ROOT, 'gateway/reference/openapi.json'), 'utf8')) as {
  paths: Record<string, Record<string, { operationId: string; 'x-codeSamples': CodeSample[] }>>;
};
const operations = Object.values(description.paths).flatMap((path) => Object.values(path));

const RUN: Readonly<Record<string, (source: string) => readonly [string, ...string[]]>> = {
  curl: (source) => ['sh', '-c', source.replace('curl -i', 'curl -sS -i')],
  fetch: (source) => [process.execPath, '--input-type=module', '-e', source],
  Python: (source) => ['python3', '-c', source],
};

test('every sample of every operation runs as it stands, with the key from the environment', async () => {
  const stack = await startStack();
  const key = await stack.issueKey();
  await post(`${stack.gateway}/v1/pets`, { name: 'Rex', categoryId: 1 }, { key });
  expect(operations.length).toBeGreaterThanOrEqual(5);
  for (const { operationId, 'x-codeSamples': samples } of operations) {
    expect(samples.map(({ label }) => label)).toEqual(Object.keys(RUN));
    for (const { label, source } of samples) {
      expect(source).not.toMatch(/as_/);
      const [command, ...args] = (RUN[label] as (typeof RUN)[string])(source.replaceAll(SAMPLE_ORIGIN, stack.gateway));
      const { stdout } = await run(command, args, {
        env: { PATH: process.env.PATH, HOME: process.env.HOME, KEY: key },
      });
      expect([operationId, label, stdout]).toEqual([operationId, label, expect.stringMatching(/\b20[01]\b/)]);
    }
  }
});
