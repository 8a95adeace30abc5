import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { CoreSettings, readCoreSettings } from '../../core/config.ts';
import { LOCAL_PROGRAM, LocalSettings } from '../../deploy/local-settings.ts';
import { GatewaySettings, readGatewaySettings } from '../../gateway/config.ts';
import { misspelt } from '../../shared/process/arguments.ts';
import { isSecret, readSettings, SettingsError } from '../../shared/process/env.ts';
import { helpText, settingRows } from '../../shared/process/help.ts';
import { createAuthority } from '../support/certificates.ts';
import { listeningCore } from '../support/faulty-core.ts';
import { startProcess } from '../support/process.ts';
import { ADMIN_TOKEN, temporaryFolder } from '../support/stack.ts';

const folder = await temporaryFolder();
const authority = await createAuthority();

/** Runs a service that does not start. @returns how it ended, and whether it has created its data folder */
async function notStarted(args: readonly string[], settings: NodeJS.ProcessEnv = {}) {
  const DATA_DIR = join(await temporaryFolder(), 'new');
  const environment = { DATA_DIR, DATABASE_URL: `sqlite:${DATA_DIR}/store.db`, LOG_LEVEL: 'loud', ...settings };
  const { code, err, out } = await startProcess(process.execPath, [...args], environment).ended;
  return { code, err, out, started: existsSync(DATA_DIR) };
}

test('invalid or misspelt settings and arguments are all reported without their values, and startup fails', async () => {
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
    WROKERS: 'secret-in-the-wrong-place',
  };
  const { err, ...how } = await notStarted(['gateway/main.ts', '--prot', '9000'], environment);
  expect(how).toEqual({ code: 1, out: '', started: false });
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
const NO_PERCENT = 'REDIS_URL: must have a user and password in percent-encoding, with %25 for each %';
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
  ...['redis://u:50%off@a', 'redis://50%:x@a', 'redis://u:%ff@a'].map((REDIS_URL) => pair({ REDIS_URL }, NO_PERCENT)),
  [{ CORE_TOKEN: '' }, 'CORE_TOKEN: must not be empty: unset it if there is no token'],
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

test.for<[main: string, settings: Record<string, string>, ...faults: string[]]>([
  ['core/main.ts', { PORT: inUse.port }, `${IN_USE} PORT to a free port`],
  ['core/main.ts', { HOST: '999.1.1.1' }, `${NO_NAME} HOST to an address of this machine`],
  [
    'gateway/main.ts',
    { PORT: inUse.port, ADMIN_HOST: '203.0.113.9' },
    `${IN_USE} PORT to a free port`,
    `${NO_ADDRESS} ADMIN_HOST to an address of this machine`,
  ],
  [
    'gateway/main.ts',
    { HOST: '999.1.1.1', PORT: inUse.port, ADMIN_PORT: inUse.port },
    `${NO_NAME} HOST to an address of this machine`,
    `${IN_USE} ADMIN_PORT to a free port`,
  ],
])('%s reports the unusable %j in a readable message that names the setting', async ([main, settings, ...faults]) => {
  const DATA_DIR = await temporaryFolder();
  const environment = {
    ...{ PORT: '0', ADMIN_PORT: '0', ADMIN_TOKEN, DATA_DIR, DATABASE_URL: `sqlite:${DATA_DIR}/a.db` },
    ...settings,
  };
  expect(await startProcess(process.execPath, [main], environment).ended).toEqual({
    code: 1,
    out: '',
    err: faults.map((fault) => `Cannot listen on ${fault}.\n`).join(''),
  });
});

test('unset and empty settings have their default values', () => {
  const defaults = { HOST: '127.0.0.1', PORT: 8080, CORE_URL: ['http://127.0.0.1:7001'], REDIS_TIMEOUT_MS: 250 };
  expect(readGatewaySettings({ PORT: '', REDIS_URL: '' })).toMatchObject(defaults);
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

const MISSPELT = `
  REDIS_URI=REDIS_URL REDISURL=REDIS_URL REDIS_ULR=REDIS_URL redis_url=REDIS_URL CORE_URLS=CORE_URL CORE_URI=CORE_URL
  ADMIN_TOKN=ADMIN_TOKEN CORE_TOKENS=CORE_TOKEN REDIS_TIMEOUT=REDIS_TIMEOUT_MS TLS_CERT=TLS_CERT_FILE PROT=PORT
  HSOT=HOST WROKERS=WORKERS TRUSTED_PROXY=TRUSTED_PROXIES TRUSTED_PROXYS=TRUSTED_PROXIES TRUSTED_PROXES=TRUSTED_PROXIES
  ACTIVITY_LEN=ACTIVITY_LENGTH DATADIR=DATA_DIR
`;

test.for(MISSPELT.trim().split(/\s+/))('for a misspelt setting, the gateway suggests the right one: %s', (pair) => {
  const [name = '', meant] = pair.split('=');
  const line = `  ${name}: is not a setting; did you mean ${meant}? Rename or unset it`;
  const read = () => readGatewaySettings({ [name]: 'secret-in-the-wrong-place' });
  expect(read).toThrow(new Error(`The settings are invalid:\n${line}`));
});

test('npm start suggests CORE_PORT for CORE_PROT, and only the core suggests DATABASE_URL for DATABASE_URI', () => {
  expect(() => readGatewaySettings({ DATABASE_URI: 'secret-in-the-wrong-place' })).not.toThrow();
  expect(() => readSettings(LocalSettings, { CORE_PROT: '7002' }, [])).toThrow('did you mean CORE_PORT?');
  expect(() => readCoreSettings({ DATABASE_URI: 'postgres://a' })).toThrow('did you mean DATABASE_URL?');
});

const NO_ARGUMENT = 'is not accepted: settings are environment variables.';

test.for([
  [['--prot', '9000'], `--prot: ${NO_ARGUMENT} Did you mean PORT=9000?`],
  [['--port=9000'], `--port: ${NO_ARGUMENT} Did you mean PORT=9000?`],
  [['PORT=9000'], `PORT: ${NO_ARGUMENT} Did you mean PORT=9000?`],
  [['--admin-prot', '--'], `--admin-prot: ${NO_ARGUMENT} Did you mean ADMIN_PORT=…?`, `argument 2: ${NO_ARGUMENT}`],
  [['--admin-token', 'a-token-of-operators'], `--admin-token: ${NO_ARGUMENT} Did you mean ADMIN_TOKEN=…?`],
  [['--admin_tokn=a-token-of-operators'], `--admin_tokn: ${NO_ARGUMENT} Did you mean ADMIN_TOKEN=…?`],
  [['--core-url', 'http://a:secret@core'], `--core-url: ${NO_ARGUMENT} Did you mean CORE_URL=…?`],
  [['--token', 'a-token-of-operators'], `--token: ${NO_ARGUMENT} --help lists them`],
  [['-pa-token-of-operators', '-v'], `-p: ${NO_ARGUMENT} --help lists them`, `-v: ${NO_ARGUMENT}`],
  [['start', '9000'], `start: ${NO_ARGUMENT} --help lists them`, `9000: ${NO_ARGUMENT}`],
  [['a-token-of-operators', ''], `argument 1: ${NO_ARGUMENT} --help lists them`, `argument 2: ${NO_ARGUMENT}`],
  [['a-token-of-operators=9'], `argument 1: ${NO_ARGUMENT}`],
] as const)(
  'the arguments %j are reported as errors, without values that may be secret',
  async ([args, ...reported]) => {
    const read = async () => readGatewaySettings({}, args);
    const fault: string = await read().then(String, ({ message }) => message);
    expect(fault.split('\n').slice(1)).toEqual(reported.map((line) => expect.stringContaining(`  ${line}`)));
    expect(fault).not.toMatch(/secret|token-of/);
  },
);

test('the core does not start with an argument and reports it with all other errors', async () => {
  expect(await notStarted(['core/main.ts', '--prot', '9000'])).toEqual({
    code: 1,
    out: '',
    started: false,
    err: `The settings are invalid:
  LOG_LEVEL: must be one of fatal, error, warn, info, debug, trace, silent
  --prot: ${NO_ARGUMENT} Did you mean PORT=9000?
`,
  });
});

test('a variable that resembles a setting is not reported if that setting is set', () => {
  const settings = { REDIS_URL: 'redis://a', REDIS_URI: 'redis://b', LOGLEVEL: 'x', LOG_LEVEL: 'info' };
  expect(() => readGatewaySettings(settings)).not.toThrow();
  expect(() => readCoreSettings(settings)).not.toThrow();
});

/** Variables that Kubernetes sets in every container for a service of its namespace (enableServiceLinks). */
function serviceLinks(service: string, port: number): string[] {
  const name = service.toUpperCase().replaceAll('-', '_');
  const link = `${name}_PORT_${port}_TCP`;
  return [
    ...[`${name}_SERVICE_HOST`, `${name}_SERVICE_PORT`, `${name}_SERVICE_PORT_HTTP`, `${name}_PORT`],
    ...[link, `${link}_PROTO`, `${link}_PORT`, `${link}_ADDR`],
  ];
}

/** Variables of containers, shells, npm, CI, proxies, databases and clouds that are not our settings. */
const ORDINARY = [
  ...['kubernetes', 'redis', 'redis-master', 'redis-sentinel', 'redis-headless', 'core', 'gateway', 'postgres', 'admin']
    .flatMap((service) => serviceLinks(service, 8080))
    .filter((name) => name !== 'ADMIN_PORT'),
  ...`
    HOSTNAME HOME PATH PWD OLDPWD SHLVL TERM LANG LC_ALL USER LOGNAME SHELL _ PORTAL HOSTS HOSTTYPE XPORT PORTS
    TRUST_PROXY LOG_DIR DATA_PATH REDIS_PASS REPORT WORKER GHOST host port WORKERS_MAX NODE_ENV NODE_OPTIONS
    NODE_VERSION YARN_VERSION NODE_EXTRA_CA_CERTS TZ DEBUG CI TMPDIR npm_config_host npm_config_port
    npm_config_cache npm_config_loglevel npm_package_name INIT_CWD npm_lifecycle_event npm_execpath
    npm_node_execpath npm_config_user_agent npm_config_local_prefix http_proxy https_proxy no_proxy HTTP_PROXY
    HTTPS_PROXY NO_PROXY ALL_PROXY SSL_CERT_FILE SSL_CERT_DIR CURL_CA_BUNDLE AWS_CA_BUNDLE XDG_DATA_DIRS
    XDG_DATA_HOME PGHOST PGPORT PGDATA POSTGRES_USER POSTGRES_PASSWORD POSTGRES_DB REDIS_PASSWORD REDIS_VERSION
    REDIS_DOWNLOAD_URL GITHUB_TOKEN CI_JOB_TOKEN VAULT_TOKEN CORE_HOST CORE_PORT OTEL_EXPORTER_OTLP_ENDPOINT
    CGO_ENABLED CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE JAVA_HOME COMPOSE_PROJECT_NAME DOCKER_HOST INVOCATION_ID
    ADMIN_TOKEN_FILE CORE_TOKEN_FILE REDIS_URL_FILE DATABASE_URL_FILE WEBHOOK_URL WEBHOOK_SECRET
  `
    .trim()
    .split(/\s+/),
];

test('ordinary variables, including those of Kubernetes, are not reported', () => {
  const own = [GatewaySettings, CoreSettings].map(({ shape }) => Object.keys(shape));
  const all = [...ORDINARY, ...Object.keys(process.env).filter((name) => !own.flat().includes(name))];
  for (const settings of own) expect(misspelt(all, settings)).toEqual([]);
  const beside = all.filter((name) => !['CORE_HOST', 'CORE_PORT'].includes(name));
  expect(misspelt(beside, Object.keys(LocalSettings.shape))).toEqual([]);
});

test('gateway and core do not report each other’s settings, which npm start passes to both', () => {
  const [gateway, core] = [Object.keys(GatewaySettings.shape), Object.keys(CoreSettings.shape)];
  expect([misspelt(gateway, core), misspelt(core, gateway)]).toEqual([[], []]);
  for (const settings of [gateway, core])
    for (const name of settings) {
      const others = settings.filter((other) => other !== name);
      expect(misspelt([name], others)).toEqual([]);
    }
});

test.for([
  ['gateway/main.ts', '--help', GatewaySettings.shape],
  ['core/main.ts', '-h', CoreSettings.shape],
  ['deploy/local.ts', '--help', LOCAL_PROGRAM.settings],
] as const)(
  '%s with %s prints usage and settings but starts nothing, even with invalid settings and arguments',
  async ([main, help, shape]) => {
    const { out, ...how } = await notStarted([main, '--prot', help]);
    expect(how).toEqual({ code: 0, err: '', started: false });
    expect(out).toMatch(/^Usage: /m);
    const rows = [...out.matchAll(/^([A-Z_]+) +(\S+) +\S/gm)].map(([, name, defaultValue]) => [name, defaultValue]);
    expect(rows).toEqual(settingRows(shape).map(([name, defaultValue]) => [name, defaultValue]));
  },
);

test.for([undefined, 200, 100, 80, 40])(
  'on a terminal with %s columns, the help table has from 80 to 100 columns, and all meanings are aligned',
  (columns) => {
    const lines = helpText(LOCAL_PROGRAM, columns).split('\n');
    expect(Math.max(...lines.map(({ length }) => length))).toBeLessThanOrEqual(
      columns !== undefined && columns < 100 ? 80 : 100,
    );
    const head = lines.findIndex((line) => line.startsWith('setting'));
    const table = lines.slice(head, lines.indexOf('', head));
    const start = table[0]?.indexOf('meaning') ?? 0;
    for (const line of table) expect([line[start - 1], line[start]]).toEqual([' ', expect.stringMatching(/\S/)]);
    const words = table
      .slice(1)
      .map((line) => line.slice(start))
      .join(' ');
    expect(words).toBe(
      settingRows(LOCAL_PROGRAM.settings)
        .map(([, , meaning]) => meaning.replaceAll('`', ''))
        .join(' '),
    );
  },
);
