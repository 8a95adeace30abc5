import { existsSync, statfsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { readCoreSettings } from '../../core/config.ts';
import { startCore } from '../../core/core.ts';
import { readGatewaySettings } from '../../gateway/config.ts';
import type { GatewayRoute } from '../../gateway/routes.ts';
import type { ServerLimits } from '../../shared/http/server.ts';
import { cleanUp } from './clean-up.ts';
import { miscounted, serverErrors } from './counted-decisions.ts';
import { knowServices } from './described-answers.ts';
import { watchFailures } from './failures.ts';
import { type Answer, post, type Sent, send } from './http.ts';
import { readableLog } from './log.ts';
import { scrape } from './metrics.ts';
import { startGateway } from './one-process.ts';

export type Stack = Awaited<ReturnType<typeof startStack>>;

export const ADMIN_TOKEN = 'token-of-the-tests';

/** Limits that no test reaches. */
export const UNLIMITED = { plan: 'enterprise', minute: 1_000_000, day: 1_000_000 };

const MEMORY = '/dev/shm';
/** Docker gives a container 64 MB unless told otherwise, which the databases of a few tests may fill. */
const ROOM_BYTES = 1_000_000_000;

/** Creates a folder that is deleted after the test, or after the test file. */
export async function temporaryFolder(within = tmpdir()): Promise<string> {
  const directory = await mkdtemp(join(within, 'animal-store-'));
  // A process that is stopping may still write to the folder.
  cleanUp(() => rm(directory, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 }));
  return directory;
}

/** Creates a folder for databases, in memory if there is room, because each sync of a disk takes milliseconds. */
export const databaseFolder = (): Promise<string> => temporaryFolder(hasRoom(MEMORY) ? MEMORY : undefined);

function hasRoom(folder: string): boolean {
  if (!existsSync(folder)) return false;
  const { bavail, bsize } = statfsSync(folder);
  return bavail * bsize > ROOM_BYTES;
}

/** The settings for each limiter by name, for tests that cover both. @param REDIS_URL the URL of an empty database */
export const bothStacks = (REDIS_URL: string): readonly [name: string, environment: Record<string, string>][] => [
  ['the embedded limiter', {}],
  ['Redis', { REDIS_URL, REDIS_TIMEOUT_MS: '5000' }],
];

/**
 * Starts a core and a gateway on free ports, wired as in their main.ts. They are stopped after the test, or after the
 * test file.
 * @param limits the limits of the gateway, for tests in which the defaults would take too long
 * @param routes the routes that replace the store's operations
 */
export async function startStack(
  environment: Record<string, string> = {},
  limits: Partial<ServerLimits> = {},
  routes?: readonly GatewayRoute[],
) {
  const directory = environment.DATA_DIR ?? (await databaseFolder());
  const [{ logger, lines }, coreLog] = [readableLog(), readableLog()];
  const core = await startCore(
    readCoreSettings({ DATABASE_URL: `sqlite:${directory}/store.db`, ...environment, PORT: '0' }),
    coreLog.logger,
  );
  const settings = {
    CORE_URL: core.addresses.core,
    ADMIN_TOKEN,
    DATA_DIR: directory,
    ...environment,
    PORT: '0',
    ADMIN_PORT: '0',
  };
  const gateway = await startGateway(readGatewaySettings(settings), logger, limits, routes);
  const { gateway: url = '', admin: adminUrl = '' } = gateway.addresses;
  const forget = knowServices({ ...core.addresses, ...gateway.addresses }, settings.CORE_URL);

  /** Calls the admin API, by default with ADMIN_TOKEN. */
  async function admin(method: string, path: string, body?: unknown, more: Sent = {}): Promise<Answer> {
    const sent = { method, key: ADMIN_TOKEN, ...more };
    return body === undefined ? await send(adminUrl + path, sent) : await post(adminUrl + path, body, sent);
  }

  const checks = [
    watchFailures([url, adminUrl], {
      lines: () => lines,
      counted: async (listener) => serverErrors(await scrape(adminUrl), listener === url ? 'gateway' : 'gateway_admin'),
    }),
    watchFailures([core.addresses.core ?? ''], {
      lines: () => coreLog.lines,
      counted: async (listener) => serverErrors(await scrape(listener), 'core'),
    }),
  ];
  async function checkAll(): Promise<void> {
    for (const check of checks) await check();
    expect(miscounted(await scrape(adminUrl))).toEqual([]);
  }

  let stopped: Promise<void> | undefined;
  /** @param lameDuckMs how long to continue to serve requests before the stop */
  const stop = (lameDuckMs = 0): Promise<void> => (stopped ??= stopAll(lameDuckMs));
  async function stopAll(lameDuckMs: number): Promise<void> {
    await gateway.stop(lameDuckMs);
    await core.stop(0);
    forget();
  }
  cleanUp(async () => {
    try {
      if (stopped === undefined) await checkAll();
    } finally {
      await stop();
    }
  });
  return {
    /** Base URL of the gateway, without /v1. */
    gateway: url,
    core: core.addresses.core ?? '',
    adminUrl,
    directory,
    /** The gateway's log, and the core's. */
    log: lines,
    coreLog: coreLog.lines,
    admin,
    /** Issues a key and returns it. */
    async issueKey(key: Record<string, unknown> = {}): Promise<string> {
      const created = await admin('POST', '/keys', { name: 'test', plan: 'free', ...key });
      return (created.json as { key: string }).key;
    },
    stop,
  };
}
