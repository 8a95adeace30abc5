import { expect, test } from 'vitest';
import { readCoreSettings } from '../../core/config.ts';
import { readGatewaySettings } from '../../gateway/config.ts';
import { SettingsError } from '../../shared/process/env.ts';
import { createAuthority } from '../support/certificates.ts';
import { startProcess, startService } from '../support/process.ts';
import { temporaryFolder } from '../support/stack.ts';

test('a start with invalid settings names all faults, repeats no value, and exits with 1', async () => {
  const environment = {
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
  };
  const { code, err, out } = await startProcess(process.execPath, ['gateway/main.ts'], environment).ended;
  expect({ code, out }).toEqual({ code: 1, out: '' });
  expect(err).toBe(`The settings have faults:
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
  WEBHOOK_SECRET: must be at least 24 bytes, without spaces: as base64 behind whsec_, or as text
  LOG_LEVEL: must be one of fatal, error, warn, info, debug, trace, silent
  ADMIN_TOKEN: is required when ADMIN_HOST is not a loopback address
`);
});

test.for([
  [{ REDIS_MODE: 'ring' }, 'REDIS_MODE: must be single, cluster or sentinel'],
  [{ REDIS_MODE: 'cluster', REDIS_URL: '' }, 'REDIS_URL: is required when REDIS_MODE is cluster'],
  [{ REDIS_MODE: 'sentinel' }, 'REDIS_MASTER_NAME: is required when REDIS_MODE is sentinel'],
  [{ REDIS_URL: 'redis://a,redis://b' }, 'REDIS_URL: must be one when REDIS_MODE is single'],
  [
    { REDIS_MODE: 'cluster', REDIS_URL: 'redis://a/1' },
    'REDIS_URL: must name no database: a cluster has number 0 only',
  ],
  [
    { REDIS_MODE: 'cluster', REDIS_URL: 'redis://u:secret@a,redis://u:other@b' },
    'REDIS_URL: must agree in protocol, user, password and database',
  ],
  [{ REDIS_URL: 'redis://a?enableOfflineQueue=true' }, 'REDIS_URL: must have no query and no fragment'],
  [
    { REDIS_URL: 'rediss://a', REDIS_CA_FILE: '/does/not/exist' },
    'REDIS_CA_FILE: must be a file that holds certificates in PEM',
  ],
  [
    { REDIS_URL: 'rediss://a', REDIS_CA_FILE: 'package.json' },
    'REDIS_CA_FILE: must be a file that holds certificates in PEM',
  ],
  [{ WEBHOOK_URL: 'http://a/hook' }, 'WEBHOOK_SECRET: is required with WEBHOOK_URL'],
  ...['ftp://a', 'a/hook', 'javascript:1'].map(
    (url) =>
      [
        { WEBHOOK_URL: url, WEBHOOK_SECRET: 'x'.repeat(24) },
        'WEBHOOK_URL: must be an http:// or https:// URL',
      ] as const,
  ),
  ...['https://user@a/hook', 'https://:secret@a/hook'].map(
    (url) =>
      [
        { WEBHOOK_URL: url, WEBHOOK_SECRET: 'x'.repeat(24) },
        'WEBHOOK_URL: must have no user and no password: WEBHOOK_SECRET is what a receiver checks',
      ] as const,
  ),
  ...['x'.repeat(23), `${'x'.repeat(24)} `, `whsec_${'A'.repeat(28)}`, `whsec_${'-'.repeat(99)}`, 'whsec_'].map(
    (secret) =>
      [
        { WEBHOOK_URL: 'https://a/hook', WEBHOOK_SECRET: secret },
        'WEBHOOK_SECRET: must be at least 24 bytes, without spaces: as base64 behind whsec_, or as text',
      ] as const,
  ),
  [{ REDIS_SENTINEL_USERNAME: 'gateway' }, 'REDIS_SENTINEL_PASSWORD: is required with REDIS_SENTINEL_USERNAME'],
] as const)('%j is refused: %s', ([settings, fault]) => {
  const read = () => readGatewaySettings({ REDIS_URL: 'redis://a', ...settings });
  expect(read).toThrow(new SettingsError(`The settings have a fault:\n  ${fault}`));
});

test.for(['x'.repeat(24), 'é'.repeat(12), `whsec_${'A'.repeat(32)}`, `whsec_${'A'.repeat(42)}==`])(
  'a webhook secret %s is long enough',
  (secret) => {
    const settings = { WEBHOOK_URL: 'https://a:8443/hook?to=me', WEBHOOK_SECRET: secret };
    expect(readGatewaySettings(settings)).toMatchObject(settings);
  },
);

test('if both TLS files cannot be read, both are named', () => {
  const files = { TLS_CERT_FILE: '/does/not/exist', TLS_KEY_FILE: '/nor/does/this' };
  expect(() => readGatewaySettings(files)).toThrow(
    new SettingsError(`The settings have faults:
  TLS_CERT_FILE: must be a file that can be read
  TLS_KEY_FILE: must be a file that can be read`),
  );
  expect(() => readGatewaySettings({ TLS_CERT_FILE: 'package.json', TLS_KEY_FILE: 'package.json' })).toThrow(
    new SettingsError(`The settings have faults:
  TLS_CERT_FILE: must hold certificates in PEM
  TLS_KEY_FILE: must hold a private key in PEM, without a passphrase`),
  );
});

test('a CA without rediss:// is refused because it has no use', async () => {
  const { caFile } = await createAuthority();
  expect(() => readGatewaySettings({ REDIS_URL: 'redis://a', REDIS_CA_FILE: caFile })).toThrow(
    'REDIS_CA_FILE: is of no use without rediss:// in REDIS_URL',
  );
});

test('an address in use is reported in a sentence', async () => {
  const DATA_DIR = await temporaryFolder();
  const taken = await startService('core/main.ts', { PORT: '0', DATABASE_URL: `sqlite:${DATA_DIR}/a.db` });
  const { port } = new URL(taken.addresses.core ?? '');
  const { code, err } = await startProcess(process.execPath, ['core/main.ts'], {
    PORT: port,
    DATABASE_URL: `sqlite:${DATA_DIR}/b.db`,
  }).ended;
  expect({ code, err }).toEqual({
    code: 1,
    err: `Cannot listen on 127.0.0.1:${port}: another program has this address. Stop it, or set PORT to a free port.\n`,
  });
});

test.for([
  ['core/main.ts', 'HOST', '999.1.1.1', '999.1.1.1: this name does not resolve.'],
  ['gateway/main.ts', 'HOST', '999.1.1.1', '999.1.1.1: this name does not resolve.'],
  ['gateway/main.ts', 'ADMIN_HOST', '999.1.1.1', '999.1.1.1: this name does not resolve.'],
  ['gateway/main.ts', 'ADMIN_HOST', '203.0.113.9', '203.0.113.9: this machine has no such address.'],
] as const)('%s reports its %s=%s in a sentence with the name of the setting', async ([main, name, host, fault]) => {
  const DATA_DIR = await temporaryFolder();
  const ports = {
    PORT: '0',
    ADMIN_PORT: '0',
    ADMIN_TOKEN: 'token-of-the-tests',
    DATABASE_URL: `sqlite:${DATA_DIR}/a.db`,
    DATA_DIR,
  };
  const { code, err } = await startProcess(process.execPath, [main], { ...ports, [name]: host }).ended;
  expect([code, err]).toEqual([1, `Cannot listen on ${fault} Set ${name} to an address of this machine.\n`]);
});

test('unset and empty settings have their defaults', () => {
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
