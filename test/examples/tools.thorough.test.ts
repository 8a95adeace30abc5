import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { describeOperations } from '../../gateway/operators/api/openapi.ts';
import { ROUTES } from '../../gateway/operators/api/routes.ts';
import { describeApi } from '../../gateway/reference/openapi.ts';
import { descriptionFile } from '../support/description.ts';
import { EXAMPLES, installPackages, PEERS } from '../support/node-packages.ts';
import { ROOT, startProcess } from '../support/process.ts';
import { temporaryFolder } from '../support/stack.ts';
import { typesOf } from './generated-clients.ts';

/** Third-party tools must accept the published files, and the files that use these tools must type-check. */

installPackages(EXAMPLES);
installPackages(PEERS);

test.for([
  ['the API', describeApi()],
  ['the admin API', describeOperations(ROUTES)],
] as const)('redocly reports no problems in the description of %s', async ([, document]) => {
  const file = join(await temporaryFolder(), 'openapi.json');
  writeFileSync(file, JSON.stringify(document));
  const env = { REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true' };
  const args = ['lint', '--extends', 'recommended-strict', file];
  const { code, out, err } = await startProcess(join(ROOT, EXAMPLES, 'node_modules/.bin/redocly'), args, env).ended;
  expect(`${out}${err}`).toContain('Your API description is valid');
  expect(`${out}${err}`).not.toMatch(/warning|error/i);
  expect(code).toBe(0);
});

test('openapi-typescript generates the types of generated-client.ts without errors', async () => {
  const cwd = join(ROOT, EXAMPLES);
  const args = ['--input-type=module', '--eval', typesOf(await descriptionFile(), 'store-api.generated.d.ts')];
  expect(await startProcess(process.execPath, args, {}, { cwd }).ended).toEqual({ code: 0, out: '', err: '' });
});

test.for([EXAMPLES, PEERS])('%s type-checks with the generated types', async (folder) => {
  const tsc = join(ROOT, 'test/node_modules/.bin/tsc');
  const { code, out } = await startProcess(tsc, ['-p', join(ROOT, folder)], {}).ended;
  expect([code, out]).toEqual([0, '']);
});
