import { expect, test } from 'vitest';
import { describeApi } from '../../gateway/reference/openapi.ts';
import { post } from '../support/http.ts';
import { LANGUAGES, runSample } from '../support/samples.ts';
import { startStack } from '../support/stack.ts';

const operations = Object.values(describeApi().paths).flatMap((path) => Object.values(path));

test('every sample of every operation runs unchanged, with the key from the environment', async () => {
  const stack = await startStack();
  const key = await stack.issueKey();
  await post(`${stack.gateway}/v1/pets`, { name: 'Rex', categoryId: 1 }, { key });
  expect(operations.length).toBeGreaterThanOrEqual(5);
  for (const { operationId, 'x-codeSamples': samples = [] } of operations) {
    expect(samples.map(({ label }) => label)).toEqual(LANGUAGES);
    for (const sample of samples) {
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
