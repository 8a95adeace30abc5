import { join } from 'node:path';
import { Redis } from 'ioredis';
import pg from 'pg';
import { folder } from '../bench/machine/processes.ts';
import { programPath } from '../bench/machine/programs.ts';
import { post } from '../support/http.ts';
import { freePort } from '../support/port.ts';
import { startPostgres } from '../support/postgres.ts';
import { answers } from '../support/redis.ts';
import { SoakProcess } from './process.ts';
import type { SoakRecord } from './record.ts';

/** The servers of a soak test: a durable Redis, PostgreSQL, two cores and two gateways. */
export type Stage = Awaited<ReturnType<typeof setStage>>;

const COUNT = 2;
const ADMIN_TOKEN = 'token-of-the-soak';
export const CORE_TIMEOUT_MS = 2_000;

export async function setStage(record: SoakRecord) {
  const onSelfEnded = (what: string) => record.broke(what);
  const freePorts = (count: number) => Promise.all(Array.from({ length: count }, freePort));
  const [[redisPort = 0], corePorts, gatewayPorts, adminPorts] = [
    await freePorts(1),
    await freePorts(COUNT),
    await freePorts(COUNT),
    await freePorts(COUNT),
  ];
  const [coreUrls, urls, adminUrls] = [corePorts, gatewayPorts, adminPorts].map((ports) =>
    ports.map((port) => `http://127.0.0.1:${port}`),
  ) as [string[], string[], string[]];
  const redisUrl = `redis://127.0.0.1:${redisPort}`;
  const client = new Redis(redisUrl, { lazyConnect: true, retryStrategy: () => 100, maxRetriesPerRequest: null });
  client.on('error', () => {});
  const redis = new SoakProcess({
    name: 'redis',
    args: redisArgs(redisPort),
    isUp: (child) => answers(redisUrl, child),
    onSelfEnded,
  });
  const postgres = await startPostgres();
  process.once('exit', () => postgres.server?.kill('SIGQUIT'));

  const cores = corePorts.map(
    (port, at) =>
      new SoakProcess({
        name: `core ${at + 1}`,
        args: [process.execPath, 'core/main.ts'],
        env: { PORT: String(port), DATABASE_URL: postgres.url, LOG_LEVEL: 'warn' },
        onLine: (line) => record.logged(line),
        onSelfEnded,
      }),
  );
  const gateways = gatewayPorts.map(
    (port, at) =>
      new SoakProcess({
        name: `gateway ${at + 1}`,
        args: [process.execPath, 'gateway/main.ts'],
        env: {
          PORT: String(port),
          ADMIN_PORT: String(adminPorts[at]),
          ADMIN_TOKEN,
          REDIS_URL: redisUrl,
          // Seven processes share the machine, so Redis must not count as down if a process gets no CPU for a moment.
          REDIS_TIMEOUT_MS: '200',
          CORE_URL: coreUrls.join(','),
          CORE_TIMEOUT_MS: String(CORE_TIMEOUT_MS),
        },
        onLine: (line) => record.loggedByGateway(`gateway ${at + 1}`, line),
        onSelfEnded,
      }),
  );
  const processes = [redis, ...cores, ...gateways];
  for (const one of processes) await one.start();
  await client.connect();
  const database = new pg.Client(postgres.url);
  await database.connect();
  return {
    redis,
    cores,
    gateways,
    /** A connection to the cores' database as a superuser. */
    database,
    processes,
    /** The URLs at which clients reach the gateways. */
    urls,
    coreUrls,
    adminUrls,
    /** The soak test's own connection to Redis. */
    client,
    async issueKey(limits: object): Promise<string> {
      const { status, json } = await post(`${adminUrls[0]}/keys`, { name: 'soak', ...limits }, { key: ADMIN_TOKEN });
      if (status !== 201) throw new Error(`The gateway refused to create a key: ${status}.`);
      return (json as { key: string }).key;
    },
    async stop() {
      client.disconnect();
      await database.end();
      for (const one of processes.toReversed()) await one.end('SIGTERM');
      await postgres.stop();
    },
  };
}

/** Each write reaches the kernel before Redis replies, so kill -9 loses nothing. */
const redisArgs = (port: number): string[] => {
  const kept = { dir: folder, save: '', appendonly: 'yes', appendfsync: 'no', logfile: join(folder, 'redis.log') };
  const directives = Object.entries({ port: String(port), bind: '127.0.0.1', ...kept });
  return [programPath('redis-server'), ...directives.flatMap(([name, value]) => [`--${name}`, value])];
};
