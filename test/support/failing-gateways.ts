import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Redis } from 'ioredis';
import { expect } from 'vitest';
import { idOf } from './api-key.ts';
import { ctl, ctlReading } from './ctl.ts';
import { eventuallyScraped } from './metrics.ts';
import { alertsOf, issue, keepAsking, type Patient, persist, repeatedly, sharedAlert } from './patient.ts';
import { connectionTo, ownRedis } from './redis-database.ts';
import { startRestartable } from './restartable.ts';
import { ADMIN_TOKEN, startStack, temporaryFolder } from './stack.ts';
import { startWorkers } from './workers.ts';

/** Gateways with faults of their own, in their Redis, their database or their plans. */

/**
 * A gateway with one key that is damaged by hand, then lost. Meanwhile, a secret is used from outside its networks,
 * later the backup is too old, and at last the audit log is gone.
 */
export async function gatewayWithBadKeys({ url, redis }: { url: string; redis: Redis }): Promise<Patient[]> {
  const stack = await startStack({ REDIS_URL: url, REDIS_TIMEOUT_MS: '5000' });
  // The limits of the plan apply while a key's own limits are unusable.
  const big = { plan: 'business', minute: 1_000_000, day: 1_000_000 };
  const [key, other] = [await stack.issueKey(big), await stack.issueKey(big)];
  const hash = `gateway:key:{${idOf(key)}}`;
  const bound = { name: 'office', networks: ['10.0.0.0/8'] };
  const secret = (await stack.admin('POST', `/keys/${idOf(other)}/secrets`, bound)).json as { key: string };
  const backUp = async () => expect((await ctl(stack, 'backup')).code).toBe(0);
  await backUp();
  persist(stack.gateway, [key], 100);
  const ofKey = [
    {
      alerts: sharedAlert('GatewayKeyDataBad'),
      cause: () => redis.hset(hash, 'minute', 'lots'),
      heal: () => redis.hset(hash, 'minute', '1000000'),
    },
    {
      alerts: alertsOf(stack.adminUrl, 'GatewayUnknownKeys'),
      cause: () => redis.rename(hash, 'lost'),
      heal: () => redis.rename('lost', hash),
    },
  ];
  const others = [
    { alerts: sharedAlert('GatewaySecretElsewhere'), cause: () => persist(stack.gateway, [secret.key], 200) },
    {
      alerts: sharedAlert('GatewayBackupMissing'),
      cause: () => redis.hset('gateway:backup', 'completed_at', Math.floor(Date.now() / 1_000) - 27 * 3_600),
      heal: backUp,
    },
    { alerts: sharedAlert('GatewayChangesLost'), cause: () => redis.del('gateway:activity') },
  ];
  return [{ gateways: [stack.adminUrl], faults: ofKey }, { faults: others }];
}

/**
 * A gateway whose plan table gets an invalid limit and is later replaced by a string. Then the gateway is suspended
 * repeatedly, like a container at its CPU limit, and finally killed.
 */
export async function gatewayAlone({ url, redis }: { url: string; redis: Redis }): Promise<Patient> {
  const settings = { PORT: '0', ADMIN_PORT: '0', ADMIN_TOKEN, REDIS_URL: url };
  const { addresses, signal, restart } = await startRestartable('gateway/main.ts', settings);
  const { admin = '' } = addresses;
  const resume = () => signal('SIGCONT');
  const throttle = () => {
    signal('SIGSTOP');
    setTimeout(resume, 600);
  };
  return {
    gateways: [admin],
    faults: [
      {
        alerts: sharedAlert('GatewayPlanValueRejected'),
        cause: () => redis.hset('gateway:plans', { 'free.minute': '1e3', 'gold.minute': '5000' }),
        async heal() {
          await redis.hset('gateway:plans', 'free.minute', '60');
          await redis.hdel('gateway:plans', 'gold.minute');
        },
      },
      {
        alerts: alertsOf(admin, 'GatewayPlansUnreadable'),
        async cause() {
          await redis.rename('gateway:plans', 'plans-of-yesterday');
          await redis.set('gateway:plans', 'not a hash');
        },
        heal: () => redis.rename('plans-of-yesterday', 'gateway:plans'),
      },
      {
        alerts: alertsOf(admin, 'GatewayEventLoopBlocked'),
        cause() {
          const end = repeatedly(throttle, 1_300);
          return () => {
            end();
            resume();
          };
        },
      },
      { alerts: alertsOf(admin, 'GatewayDown'), cause: () => signal('SIGKILL'), heal: restart },
    ],
  };
}

/** A gateway without Redis whose database file is removed. */
export async function gatewayWithoutRedis(): Promise<Patient> {
  const DATA_DIR = await temporaryFolder();
  const settings = { PORT: '0', ADMIN_PORT: '0', ADMIN_TOKEN, DATA_DIR };
  const { addresses, signal, restart } = await startRestartable('gateway/main.ts', settings);
  const { admin: adminUrl = '' } = addresses;
  return {
    gateways: [adminUrl],
    faults: [
      {
        alerts: alertsOf(adminUrl, 'GatewayDataNotStored'),
        cause: () => rm(join(DATA_DIR, 'gateway.db')),
        async heal() {
          const { out } = await ctl({ adminUrl }, 'backup');
          signal('SIGTERM');
          await restart();
          expect((await ctlReading({ adminUrl }, out, 'restore')).code).toBe(0);
        },
      },
    ],
  };
}

/** A gateway whose Redis is kept busy by another client, nearly full, and then stopped. Finally, it loses a worker. */
export async function gatewayWithWorkers(): Promise<Patient> {
  const server = await ownRedis({
    appendonly: 'yes',
    dir: await temporaryFolder(),
    'enable-debug-command': 'local',
  });
  const redis = connectionTo(server.url);
  const workers = await startWorkers({ REDIS_URL: server.url });
  const load = keepAsking(workers.gateway, [await workers.issueKey()], 2, 20);
  const { adminUrl } = workers;
  return {
    gateways: [adminUrl],
    faults: [
      {
        alerts: alertsOf(adminUrl, 'GatewayAddedLatencyHigh'),
        cause() {
          const end = repeatedly(() => redis.call('DEBUG', 'SLEEP', '0.15').catch(() => {}), 300);
          return async () => {
            await expect.poll(async () => JSON.stringify(await redis.slowlog('GET'))).toContain('SLEEP');
            end();
          };
        },
      },
      {
        alerts: sharedAlert('GatewayRedisMemoryHigh'),
        async cause() {
          const used = Number(/^used_memory:(\d+)/m.exec(await redis.info('memory'))?.[1]);
          await redis.config('SET', 'maxmemory', Math.ceil(used / 0.9));
        },
        heal: () => redis.config('SET', 'maxmemory', 0),
      },
      { alerts: alertsOf(adminUrl, 'GatewayDecisionsLocal'), cause: server.stop, heal: () => server.restart() },
      {
        alerts: alertsOf(adminUrl, 'GatewayWorkerCrashes'),
        async cause() {
          await load.stop();
          process.kill(workers.pids()[0] as number, 'SIGKILL');
        },
      },
    ],
  };
}

/** A gateway with bad plan changes: first the limits are too low for the clients, and then bans start too early. */
export async function gatewayWithBadPlans(): Promise<Patient> {
  const stack = await startStack();
  const change = (plan: string, limits: unknown) => stack.admin('PATCH', `/plans/${plan}`, limits);
  for (const plan of ['free', 'pro', 'business']) await change(plan, { minute: 1_000_000, ban_after: 1_000_000 });
  const asked = [...(await issue(stack, 6, { plan: 'free' })), ...(await issue(stack, 6, { plan: 'pro' }))];
  keepAsking(stack.gateway, asked, 2, 50);
  const many = await issue(stack, 25, { plan: 'business' });
  const rollBack = () => stack.admin('POST', '/plans/rollback', {});
  return {
    gateways: [stack.adminUrl],
    faults: [
      {
        alerts: [{ alertname: 'GatewayPlanRefusals', plan: 'pro' }],
        cause: () => change('pro', { minute: 1 }),
        heal: rollBack,
      },
      {
        alerts: sharedAlert('GatewayRefusalsSpike'),
        async cause() {
          await change('free', { minute: 1 });
          await change('pro', { minute: 1 });
        },
        async heal() {
          await rollBack();
          await change('free', { minute: 1_000_000 });
        },
      },
      {
        alerts: sharedAlert('GatewayBansSpike'),
        async cause() {
          await change('business', { minute: 1, ban_after: 1, ban_grace_seconds: 0 });
          keepAsking(stack.gateway, many, 10, 200);
        },
        async heal() {
          await rollBack();
          const { bans } = (await stack.admin('GET', '/bans')).json as { bans: { id: string }[] };
          expect(bans.length).toBeGreaterThan(20);
          for (const { id } of bans) await stack.admin('DELETE', `/keys/${id}/ban`);
          // The gauge may be a quarter of a second old.
          await eventuallyScraped(stack.adminUrl, (metrics) => metrics.sum('gateway_bans_active')).toBe(0);
        },
      },
    ],
  };
}
