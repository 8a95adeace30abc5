import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { CoreSettings, readCoreSettings } from '../../core/config.ts';
import { GatewaySettings, readGatewaySettings } from '../../gateway/config.ts';
import { isSecret, SettingsError } from '../../shared/process/env.ts';
import { createAuthority } from '../support/certificates.ts';
import { listeningCore } from '../support/faulty-core.ts';
import { startProcess } from '../support/process.ts';
import { ADMIN_TOKEN, temporaryFolder } from '../support/stack.ts';

const folder = await temporaryFolder();
const authority = await createAuthority();

test('invalid or misspelt settings and arguments are all reported without their values, and startup fails', async () => {
  const DATA_DIR = join(await temporaryFolder(), 'new');
  const environment = {
    DATA_DIR,
    PORT: '99999',
    CORE_URL: 'ftp://core,http://core/path',
    REDIS_URL: 'secret-in-the-wrong-place',
    REDIS_TIMEOUT_MS: '5s',
    TRUSTED_PROXIES:
      '10.0.0.0/8,10.0.0.0/33, 300.0.0.1,2001:db8::/32/1,::1/129,10/8,proxy.local,::ffff:10.0.0.0/8,::ffff:10.0.0.0/104',
    ADMIN_HOST: '0.0.0.0',
    RATELIMIT_FIELDS: 'yes',
    WEBHOOK_URL: 'ftp://hook',
    WEBHOOK_SECRET: 'too-short',
    LOG_LEVEL: 'loud',
    WROKERS: 'secret-in-the-wrong-place',
  };
  const args = ['gateway/main.ts', '--prot', '9000'];
  const { code, err, out } = await startProcess(process.execPath, args, environment).ended;
  expect({ code, out, started: existsSync(DATA_DIR) }).toEqual({ code: 1, out: '', started: false });
  expect(err).toBe(`The settings are invalid:
  PORT: must be a whole number from 0 to 65535
  CORE_URL.0: must be an http://, https://, http+srv://, https+srv:// or unix: URL
  CORE_URL.1: must be an origin like http://127.0.0.1:7001, without a path
  REDIS_URL: must be a redis:// or rediss:// URL
  REDIS_TIMEOUT_MS: must be a whole number from 1 to 60000
  TRUSTED_PROXIES.1: must be an IP address or a block like 10.0.0.0/8
  TRUSTED_PROXIES.2: must be an IP address or a block like 10.0.0.0/8
  TRUSTED_PROXIES.3: must be an IP address or a block like 10.0.0.0/8
  TRUSTED_PROXIES.4: must be an IP address or a block like 10.0.0.0/8
  TRUSTED_PROXIES.5: must be an IP address or a block like 10.0.0.0/8
  TRUSTED_PROXIES.6: must be an IP address or a block like 10.0.0.0/8
  TRUSTED_PROXIES.7: must be an IP address or a block like 10.0.0.0/8
  RATELIMIT_FIELDS: must be on or off
  WEBHOOK_URL: must be an http:// or https:// URL
  WEBHOOK_SECRET: must be at least 24 bytes, without spaces: as base64 after whsec_, or as text
  LOG_LEVEL: must be one of fatal, error, warn, info, debug, trace, silent
  ADMIN_TOKEN: is required when ADMIN_HOST is not a loopback address
  WROKERS: is not a setting; did you mean WORKERS? Rename or unset it
  --prot: is not accepted: settings are environment variables. Did you mean PORT=9000?
`);
});

const NO_HOOK = 'WEBHOOK_URL: must be an http:// or https:// URL';
const NO_USER = 'WEBHOOK_URL: must not contain a user or a password: receivers check WEBHOOK_SECRET';
const NO_CA = 'REDIS_CA_FILE: must be a file that holds certificates in PEM';
const NO_SECRET = 'WEBHOOK_SECRET: must be at least 24 bytes, without spaces: as base64 after whsec_, or as text';
const WORKERS_RANGE = 'WORKERS: must be a whole number from 1 to 64';
const WEBHOOK_SECRET = 'x'.repeat(24);

test.for<[settings: Record<string, string>, fault: string]>([
  [{ REDIS_MODE: 'ring' }, 'REDIS_MODE: must be single, cluster or sentinel'],
  [{ REDIS_MODE: 'cluster', REDIS_URL: '' }, 'REDIS_URL: is required when REDIS_MODE is cluster'],
  [{ REDIS_MODE: 'sentinel' }, 'REDIS_MASTER_NAME: is required when REDIS_MODE is sentinel'],
  [{ REDIS_URL: 'redis://a,redis://b' }, 'REDIS_URL: must be a single URL when REDIS_MODE is single'],
  [
    { REDIS_MODE: 'cluster', REDIS_URL: 'redis://a/1' },
    'REDIS_URL: must not name a database: a cluster has only database 0',
  ],
  [
    { REDIS_MODE: 'cluster', REDIS_URL: 'redis://u:secret@a,redis://u:other@b' },
    'REDIS_URL: must have the same protocol, user, password and database',
  ],
  [{ REDIS_URL: 'redis://a?enableOfflineQueue=true' }, 'REDIS_URL: must not have a query or fragment'],
  [{ REDIS_URL: 'rediss://a', REDIS_CA_FILE: '/does/not/exist' }, NO_CA],
  [{ REDIS_URL: 'rediss://a', REDIS_CA_FILE: 'package.json' }, NO_CA],
  [{ REDIS_CA_FILE: authority.caFile }, 'REDIS_CA_FILE: has no effect without rediss:// in REDIS_URL'],
  [{ REDIS_SENTINEL_USERNAME: 'gateway' }, 'REDIS_SENTINEL_PASSWORD: is required with REDIS_SENTINEL_USERNAME'],
  [{ WEBHOOK_URL: 'http://a/hook' }, 'WEBHOOK_SECRET: is required with WEBHOOK_URL'],
  ...['ftp://a', 'a/hook', 'javascript:1'].map((WEBHOOK_URL) => pair({ WEBHOOK_URL, WEBHOOK_SECRET }, NO_HOOK)),
  ...['https://user@a/hook', 'https://:secret@a/hook'].map((WEBHOOK_URL) =>
    pair({ WEBHOOK_URL, WEBHOOK_SECRET }, NO_USER),
  ),
  ...['x'.repeat(23), `${'x'.repeat(24)} `, `whsec_${'A'.repeat(28)}`, `whsec_${'-'.repeat(99)}`, 'whsec_'].map((bad) =>
    pair({ WEBHOOK_URL: 'https://a/hook', WEBHOOK_SECRET: bad }, NO_SECRET),
  ),
  [{ WORKERS: '2', REDIS_URL: '' }, 'WORKERS: must be 1 without REDIS_URL: embedded storage cannot be shared'],
  ...['0', '65', 'two'].map((WORKERS) => pair({ WORKERS }, WORKERS_RANGE)),
])('the settings %j are refused: %s', ([settings, fault]) => {
  const read = () => readGatewaySettings({ REDIS_URL: 'redis://a', ...settings });
  expect(read).toThrow(new SettingsError(`The settings are invalid:\n  ${fault}`));
});

function pair(settings: Record<string, string>, fault: string): [Record<string, string>, string] {
  return [settings, fault];
}

test.for(['x'.repeat(24), 'é'.repeat(12), `whsec_${'A'.repeat(32)}`, `whsec_${'A'.repeat(42)}==`])(
  'the webhook secret %s is long enough',
  (secret) => {
    const settings = { WEBHOOK_URL: 'https://a:8443/hook?to=me', WEBHOOK_SECRET: secret };
    expect(readGatewaySettings(settings)).toMatchObject(settings);
  },
);

const inUse = new URL((await listeningCore()).url);
const IN_USE = `${inUse.host}: another program uses this address. Stop it, or set`;
const NO_NAME = '999.1.1.1: this name does not resolve. Set';
const NO_ADDRESS = '203.0.113.9: this machine has no such address. Set';

test.for([
  ['core/main.ts', 'PORT', inUse.port, IN_USE],
  ['gateway/main.ts', 'PORT', inUse.port, IN_USE],
  ['gateway/main.ts', 'ADMIN_PORT', inUse.port, IN_USE],
  ['core/main.ts', 'HOST', '999.1.1.1', NO_NAME],
  ['gateway/main.ts', 'HOST', '999.1.1.1', NO_NAME],
  ['gateway/main.ts', 'ADMIN_HOST', '999.1.1.1', NO_NAME],
  ['gateway/main.ts', 'ADMIN_HOST', '203.0.113.9', NO_ADDRESS],
] as const)(
  '%s reports the unusable %s=%s in a readable message that names the setting',
  async ([main, name, value, fault]) => {
    const DATA_DIR = await temporaryFolder();
    const environment = {
      ...{ PORT: '0', ADMIN_PORT: '0', ADMIN_TOKEN, DATA_DIR, DATABASE_URL: `sqlite:${DATA_DIR}/a.db` },
      [name]: value,
    };
    const remedy = `${name} to ${name.endsWith('PORT') ? 'a free port' : 'an address of this machine'}.`;
    expect(await startProcess(process.execPath, [main], environment).ended).toEqual({
      code: 1,
      out: '',
      err: `Cannot listen on ${fault} ${remedy}\n`,
    });
  },
);

test('unset and empty settings have their default values', () => {
  expect(readGatewaySettings({ PORT: '', REDIS_URL: '' })).toMatchObject({
    HOST: '127.0.0.1',
    PORT: 8080,
    CORE_URL: ['http://127.0.0.1:7001'],
    REDIS_TIMEOUT_MS: 250,
  });
  expect(readCoreSettings({})).toEqual({
    HOST: '127.0.0.1',
    PORT: 7001,
    DATABASE_URL: 'sqlite:.data/store.db',
    BODY_LIMIT_BYTES: 65_536,
    LOG_LEVEL: 'info',
    secretFiles: {},
  });
});

test('unusable TLS files are reported as invalid settings', async () => {
  const [text, der, locked] = [join(folder, 'text'), join(folder, 'cert.der'), join(folder, 'locked.key')];
  await writeFile(text, 'no certificate');
  execFileSync('openssl', ['x509', '-in', authority.certFile, '-outform', 'der', '-out', der]);
  execFileSync('openssl', ['pkey', '-in', authority.keyFile, '-aes128', '-passout', 'pass:secret', '-out', locked]);
  const { certFile, keyFile } = authority;
  const none = join(folder, 'none');
  const noFile = 'TLS_CERT_FILE: must be a file that can be read';
  const noCertificate = 'TLS_CERT_FILE: must hold certificates in PEM';
  const noKey = 'TLS_KEY_FILE: must hold a private key in PEM, without a passphrase';
  for (const [TLS_CERT_FILE, TLS_KEY_FILE, fault] of [
    [certFile, '', 'TLS_KEY_FILE: is required with TLS_CERT_FILE'],
    ['', keyFile, 'TLS_CERT_FILE: is required with TLS_KEY_FILE'],
    [none, keyFile, noFile],
    [certFile, folder, 'TLS_KEY_FILE: must be a file that can be read'],
    [text, keyFile, noCertificate],
    [der, keyFile, noCertificate],
    [certFile, text, noKey],
    [certFile, locked, noKey],
    [certFile, (await createAuthority()).keyFile, 'TLS_KEY_FILE: must be the key of the certificate'],
    [none, none, `${noFile}\n  TLS_KEY_FILE: must be a file that can be read`],
    [text, text, `${noCertificate}\n  ${noKey}`],
  ] as const) {
    const read = () => readGatewaySettings({ PORT: 'x', TLS_CERT_FILE, TLS_KEY_FILE });
    // The error is reported together with all others.
    expect(read).toThrow(`invalid:\n  PORT: must be a whole number from 0 to 65535\n  ${fault}`);
  }
});

/** Writes a file that contains a secret. @returns its path */
async function file(content: string): Promise<string> {
  const path = join(folder, `secret-${content.length}`);
  await writeFile(path, content);
  return path;
}

const secretsIn = (shape: typeof GatewaySettings.shape | typeof CoreSettings.shape) =>
  Object.entries(shape)
    .filter(([, schema]) => isSecret(schema))
    .map(([name]) => name);

test('each secret setting can be read from a file', async () => {
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
    for (const end of ['', '\n', '\r\n']) {
      const path = await file(value + end);
      const read = readGatewaySettings({ [`${name}_FILE`]: path });
      expect(read).toEqual({ ...readGatewaySettings({ [name]: value }), secretFiles: { [name]: path } });
    }
});

test('errors in secret files are reported together with all others, and without values', async () => {
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
    new SettingsError(`The settings are invalid:
  CORE_TOKEN_FILE: must not be set together with CORE_TOKEN
  REDIS_URL_FILE: must be a file that can be read (ENOENT)
  WEBHOOK_SECRET_FILE: must be a non-empty file
  PORT: must be a whole number from 0 to 65535
  ADMIN_TOKEN: must be a token of at least 16 characters, without spaces`),
  );
  expect(() => readCoreSettings({ DATABASE_URL_FIL: 'x' })).toThrow('did you mean DATABASE_URL_FILE?');
});
