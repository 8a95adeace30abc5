import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { CoreSettings, readCoreSettings } from '../../core/config.ts';
import { GatewaySettings, readGatewaySettings } from '../../gateway/config.ts';
import { isSecret, SettingsError } from '../../shared/process/env.ts';
import { temporaryFolder } from '../support/stack.ts';

const folder = await temporaryFolder();

async function file(content: string): Promise<string> {
  const path = join(folder, `secret-${content.length}`);
  await writeFile(path, content);
  return path;
}

const secretsIn = (shape: typeof GatewaySettings.shape | typeof CoreSettings.shape) =>
  Object.entries(shape)
    .filter(([, schema]) => isSecret(schema))
    .map(([name]) => name);

/** A setting that is read from a file with this content has the value. */
async function expectSame(name: string, value: string, content: string): Promise<void> {
  const path = await file(content);
  const secretFiles = { [name]: path };
  expect(readGatewaySettings({ [`${name}_FILE`]: path })).toEqual({
    ...readGatewaySettings({ [name]: value }),
    secretFiles,
  });
}

test('each secret setting can be a file', async () => {
  expect(secretsIn(CoreSettings.shape)).toEqual(['DATABASE_URL', 'CORE_TOKEN']);
  const values = {
    CORE_TOKEN: 'a-token-of-the-core',
    REDIS_URL: 'redis://:password@127.0.0.1',
    REDIS_SENTINEL_PASSWORD: 'pass word',
    ADMIN_TOKEN: 'a-token-of-operators',
    WEBHOOK_SECRET: 'a webhook secret of some length'.replaceAll(' ', '-'),
  };
  expect(secretsIn(GatewaySettings.shape)).toEqual(Object.keys(values));
  for (const [name, value] of Object.entries(values))
    for (const end of ['', '\n', '\r\n']) await expectSame(name, value, value + end);
});

test('faults of secret files are reported with all others and without a value', async () => {
  const secret = 'short-secret';
  const settings = {
    CORE_TOKEN: 'a-token-of-the-core',
    CORE_TOKEN_FILE: await file(secret),
    ADMIN_TOKEN_FILE: await file(secret),
    REDIS_URL_FILE: '/does/not/exist',
    WEBHOOK_SECRET_FILE: await file('\n'),
    ADMIN_TOKEN_FIL: 'x',
    PORT: '99999',
  };
  expect(() => readGatewaySettings(settings)).toThrow(
    new SettingsError(`The settings have faults:
  CORE_TOKEN_FILE: must not be set beside CORE_TOKEN
  REDIS_URL_FILE: must be a file that can be read (ENOENT)
  WEBHOOK_SECRET_FILE: must be a file that is not empty
  PORT: must be a whole number from 0 to 65535
  ADMIN_TOKEN: must be a token of at least 16 characters, without spaces`),
  );
  expect(() => readCoreSettings({ DATABASE_URL_FIL: 'x' })).toThrow('did you mean DATABASE_URL_FILE?');
});
