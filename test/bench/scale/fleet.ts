import http from 'node:http';
import { json } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Docker } from '../../support/containers/docker.ts';
import type { Engine } from '../../support/containers/engine.ts';
import { post, send } from '../../support/http.ts';

/** Gateways, cores, shards and a PostgreSQL in containers on one network, each kind with a limit of CPU. */

export const KINDS = ['gateway', 'core', 'shard'] as const;
export type Kind = (typeof KINDS)[number];

/** How many containers of each kind there are, and how much of a CPU each of them may take. */
export type Topology = Readonly<Record<Kind, { readonly count: number; readonly cpus: number }>>;

export interface Fleet {
  readonly gatewayUrls: readonly string[];
  /** The limits of the topology hold from then on. */
  limit(): Promise<void>;
  /** µs of CPU that all of a kind have taken so far. */
  cpuMicroseconds(kind: Kind | 'postgres'): Promise<number>;
}

export const TOKEN = 'token-of-the-benchmark';
const NETWORK = 'scale';
const PASSWORD = 'secret';
const READY_MS = 120_000;
const PETS = 21;

/** What stays for the whole run: shards, PostgreSQL, and cores that nobody asks yet. */
export async function startGround(
  docker: Docker,
  images: { redis: string; postgres: string },
  shards: number,
  cores: number,
): Promise<void> {
  await docker(['network', 'create', NETWORK]);
  const settings = [
    '--cluster-enabled',
    'yes',
    '--cluster-require-full-coverage',
    'no',
    '--protected-mode',
    'no',
    '--save',
    '',
  ];
  for (let at = 1; at <= shards; at++)
    await run(docker, `shard-${at}`, images.redis, {}, ['redis-server', ...settings]);
  const nodes = await Promise.all(
    Array.from({ length: shards }, async (_, at) => `${await addressOf(docker, `shard-${at + 1}`)}:6379`),
  );
  await docker(['exec', 'shard-1', 'redis-cli', '--cluster', 'create', ...nodes, '--cluster-yes']);
  await run(docker, 'postgres', images.postgres, {
    POSTGRES_USER: 'store',
    POSTGRES_DB: 'store',
    POSTGRES_PASSWORD: PASSWORD,
  });
  await until(() => docker(['exec', 'postgres', 'pg_isready', '-h', '127.0.0.1', '-U', 'store']));
  for (let at = 1; at <= cores; at++)
    await run(docker, `core-${at}`, 'animal-store-core', {
      DATABASE_URL: `postgres://store:${PASSWORD}@postgres:5432/store`,
    });
  const core = `http://${await addressOf(docker, 'core-1')}:7001`;
  await until(async () => expectStatus(200, await send(`${core}/readyz`)));
  for (let number = 1; number <= PETS; number++)
    expectStatus(
      201,
      await post(`${core}/v1/pets`, { name: `Rex the ${number}th`, categoryId: number, status: 'available' }),
    );
}

/** New gateways in front of some of the cores, without limits yet. */
export async function startFleet({ docker, socket }: Engine, topology: Topology): Promise<Fleet> {
  await docker(['rm', '--force', ...(await named(docker, 'gateway'))]).catch(() => {});
  const cores = await Promise.all(numbers(topology.core.count).map((at) => addressOf(docker, `core-${at}`)));
  const shards = await Promise.all(numbers(topology.shard.count).map((at) => addressOf(docker, `shard-${at}`)));
  await setLimit(docker, 'core', 1);
  await setLimit(docker, 'shard', 1);
  for (const at of numbers(topology.gateway.count))
    await run(docker, `gateway-${at}`, 'animal-store-gateway', {
      CORE_URL: cores.map((address) => `http://${address}:7001`).join(),
      REDIS_MODE: 'cluster',
      REDIS_URL: shards.map((address) => `redis://${address}:6379`).join(),
      // What is throttled answers late: here it is to be measured, and not given up.
      REDIS_TIMEOUT_MS: '10000',
      CORE_TIMEOUT_MS: '10000',
      ADMIN_HOST: '0.0.0.0',
      ADMIN_TOKEN: TOKEN,
    });
  const addresses = await Promise.all(numbers(topology.gateway.count).map((at) => addressOf(docker, `gateway-${at}`)));
  await until(async () => {
    for (const address of addresses) expectStatus(200, await send(`http://${address}:9090/readyz`));
  });
  return {
    gatewayUrls: addresses.map((address) => `http://${address}:8080`),
    async limit() {
      for (const kind of KINDS) await setLimit(docker, kind, topology[kind].cpus);
    },
    async cpuMicroseconds(kind) {
      const all = await Promise.all((await named(docker, kind)).map((name) => cpuOf(socket, name)));
      return all.reduce((sum, one) => sum + one, 0);
    },
  };
}

/** Keys without limits, by the operators' API of one gateway. */
export async function issueKeysAt(gatewayUrl: string, count: number): Promise<string[]> {
  const admin = gatewayUrl.replace(/8080$/, '9090');
  const limits = { plan: 'enterprise', minute: 1_000_000_000, day: 1_000_000_000 };
  const keys: string[] = [];
  for (let number = 1; number <= count; number++) {
    const answer = await post(`${admin}/keys`, { name: 'bench', ...limits }, { key: TOKEN });
    expectStatus(201, answer);
    keys.push((answer.json as { key: string }).key);
  }
  return keys;
}

const numbers = (count: number): number[] => Array.from({ length: count }, (_, at) => at + 1);

async function run(
  docker: Docker,
  name: string,
  image: string,
  environment: Record<string, string>,
  command: readonly string[] = [],
): Promise<void> {
  const variables = Object.entries(environment).flatMap(([key, value]) => ['--env', `${key}=${value}`]);
  const options = [
    '--detach',
    '--name',
    name,
    '--network',
    NETWORK,
    '--no-healthcheck',
    '--tmpfs',
    '/home/node:uid=1000',
  ];
  await docker(['run', ...options, ...variables, image, ...command]);
}

const addressOf = (docker: Docker, name: string): Promise<string> =>
  docker(['inspect', '--format', '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}', name]);

const named = async (docker: Docker, kind: string): Promise<string[]> =>
  (await docker(['ps', '--all', '--format', '{{.Names}}', '--filter', `name=^${kind}`])).split('\n').filter(Boolean);

async function setLimit(docker: Docker, kind: Kind, cpus: number): Promise<void> {
  await docker(['update', '--cpus', String(cpus), ...(await named(docker, kind))]);
}

/** The engine's count of a container's CPU time (https://docs.docker.com/reference/api/engine/). */
async function cpuOf(socket: string, name: string): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<http.IncomingMessage>();
  const path = `/containers/${name}/stats?stream=false&one-shot=true`;
  http.get({ socketPath: socket, path }, resolve).once('error', reject);
  const { cpu_stats } = (await json(await promise)) as { cpu_stats: { cpu_usage: { total_usage: number } } };
  return cpu_stats.cpu_usage.total_usage / 1_000;
}

function expectStatus(wanted: number, { status, text }: { status: number; text: string }): void {
  if (status !== wanted) throw new Error(`${status} instead of ${wanted}: ${text}`);
}

async function until(isDone: () => Promise<unknown>): Promise<void> {
  const end = performance.now() + READY_MS;
  for (;;) {
    const fault = await isDone().then(
      () => undefined,
      (reason: Error) => reason,
    );
    if (fault === undefined) return;
    if (performance.now() > end) throw fault;
    await sleep(200);
  }
}
