import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { CoreSettings, readCoreSettings } from '../../core/config.ts';
import { LocalSettings } from '../../deploy/local-settings.ts';
import { GatewaySettings, readGatewaySettings } from '../../gateway/config.ts';
import { misspelt } from '../../shared/process/arguments.ts';
import { readSettings } from '../../shared/process/env.ts';
import { startProcess } from '../support/process.ts';
import { temporaryFolder } from '../support/stack.ts';

test.for([
  ['REDIS_URI', 'REDIS_URL'],
  ['REDISURL', 'REDIS_URL'],
  ['REDIS_ULR', 'REDIS_URL'],
  ['redis_url', 'REDIS_URL'],
  ['CORE_URLS', 'CORE_URL'],
  ['CORE_URI', 'CORE_URL'],
  ['ADMIN_TOKN', 'ADMIN_TOKEN'],
  ['CORE_TOKENS', 'CORE_TOKEN'],
  ['REDIS_TIMEOUT', 'REDIS_TIMEOUT_MS'],
  ['TLS_CERT', 'TLS_CERT_FILE'],
  ['PROT', 'PORT'],
  ['HSOT', 'HOST'],
  ['WROKERS', 'WORKERS'],
  ['TRUSTED_PROXY', 'TRUSTED_PROXIES'],
  ['TRUSTED_PROXYS', 'TRUSTED_PROXIES'],
  ['ACTIVITY_LEN', 'ACTIVITY_LENGTH'],
  ['DATADIR', 'DATA_DIR'],
  ['DATABASE_URI', undefined],
] as const)('for the misspelt setting %s, the gateway suggests %s', ([name, meant]) => {
  const read = () => readGatewaySettings({ [name]: 'secret-in-the-wrong-place' });
  if (meant === undefined) return expect(read).not.toThrow();
  const line = `  ${name}: is not a setting; did you mean ${meant}? Rename or unset it`;
  expect(read).toThrow(new Error(`The settings are invalid:\n${line}`));
});

test('npm start suggests CORE_PORT for CORE_PROT, and the core suggests DATABASE_URL for DATABASE_URI', () => {
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
] as const)('the arguments %j are reported as errors, without values that may be secret', ([args, ...reported]) => {
  const fault = thrownBy(() => readGatewaySettings({}, args));
  expect(fault.split('\n').slice(1)).toEqual(reported.map((line) => expect.stringContaining(`  ${line}`)));
  expect(fault).not.toMatch(/secret|token-of/);
});

function thrownBy(read: () => unknown): string {
  try {
    read();
  } catch (fault) {
    return (fault as Error).message;
  }
  return '';
}

test('the core does not start with an argument and reports it with all other errors', async () => {
  const DATA_DIR = join(await temporaryFolder(), 'new');
  const environment = { DATA_DIR, DATABASE_URL: `sqlite:${DATA_DIR}/store.db`, LOG_LEVEL: 'loud' };
  const args = ['core/main.ts', '--prot', '9000'];
  const { code, err, out } = await startProcess(process.execPath, args, environment).ended;
  expect({ code, out, started: existsSync(DATA_DIR) }).toEqual({ code: 1, out: '', started: false });
  expect(err).toBe(`The settings are invalid:
  LOG_LEVEL: must be one of fatal, error, warn, info, debug, trace, silent
  --prot: ${NO_ARGUMENT} Did you mean PORT=9000?
`);
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
