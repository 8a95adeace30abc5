import type { Redis } from 'ioredis';
import { expect } from 'vitest';
import { idOf } from './api-key.ts';
import { cleanUp } from './clean-up.ts';
import { ctl } from './ctl.ts';
import { eventuallyScraped } from './metrics.ts';
import { issue, keepAsking, type Patient, persist } from './patient.ts';
import { hostOf } from './prometheus.ts';
import { connectionTo, ownRedis } from './redis-database.ts';
import { startRestartable } from './restartable.ts';
import { ADMIN_TOKEN, startStack, temporaryFolder } from './stack.ts';
import { startWorkers } from './workers.ts';

/** Gateways with faults of their own, of their Redis or of their plans. */

/** A gateway whose keys are damaged by hand, lost, and used from outside their networks. */
export async function gatewayWithBadKeys({ url, redis }: { url: string; redis: Redis }): Promise<Patient> {
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
  let end = () => {};
  return {
    gateways: [stack.adminUrl],
    faults: [
      {
        alerts: [{ alertname: 'GatewayKeyDataBad' }],
        cause: () => redis.hset(hash, 'minute', 'lots'),
        heal: () => redis.hset(hash, 'minute', '1000000'),
      },
      {
        alerts: [{ alertname: 'GatewayUnknownKeys', instance: hostOf(stack.adminUrl) }],
        cause: () => redis.rename(hash, 'lost'),
        heal: () => redis.rename('lost', hash),
      },
      {
        alerts: [{ alertname: 'GatewaySecretElsewhere' }],
        cause() {
          end = persist(stack.gateway, [secret.key], 200);
        },
        heal: () => end(),
      },
      {
        alerts: [{ alertname: 'GatewayBackupMissing' }],
        cause: () => redis.hset('gateway:backup', 'completed_at', Math.floor(Date.now() / 1_000) - 27 * 3_600),
        heal: backUp,
      },
    ],
  };
}

const limitOf = (minute: number) => ({ minute, ban_after: 1_000_000 });

/**
 * A gateway whose plan table gets an invalid limit and is later replaced by a string. The gateway is then suspended
 * again and again, like a container at its CPU limit, and is finally killed.
 */
export async function gatewayAlone({ url, redis }: { url: string; redis: Redis }): Promise<Patient> {
  const settings = { PORT: '0', ADMIN_PORT: '0', ADMIN_TOKEN, REDIS_URL: url };
  const { addresses, signal, restart } = await startRestartable('gateway/main.ts', settings);
  const { admin = '' } = addresses;
  const instance = hostOf(admin);
  const resume = () => signal('SIGCONT');
  const throttle = () => {
    signal('SIGSTOP');
    setTimeout(resume, 600);
  };
  let throttling: NodeJS.Timeout | undefined;
  cleanUp(() => clearInterval(throttling));
  return {
    gateways: [admin],
    faults: [
      {
        alerts: [{ alertname: 'GatewayPlanValueRejected' }],
        cause: () => redis.hset('gateway:plans', { 'free.minute': '1e3', 'gold.minute': '5000' }),
        async heal() {
          await redis.hset('gateway:plans', 'free.minute', '60');
          await redis.hdel('gateway:plans', 'gold.minute');
        },
      },
      {
        alerts: [{ alertname: 'GatewayPlansUnreadable', instance }],
        async cause() {
          await redis.rename('gateway:plans', 'plans-of-yesterday');
          await redis.set('gateway:plans', 'not a hash');
        },
        heal: () => redis.rename('plans-of-yesterday', 'gateway:plans'),
      },
      {
        alerts: [{ alertname: 'GatewayEventLoopBlocked', instance }],
        cause() {
          throttling = setInterval(throttle, 1_300);
        },
        heal() {
          clearInterval(throttling);
          resume();
        },
      },
      { alerts: [{ alertname: 'GatewayDown', instance }], cause: () => signal('SIGKILL'), heal: restart },
    ],
  };
}

/** A gateway whose Redis is kept busy by another client and then killed, and which loses a worker. */
export async function gatewayWithWorkers(): Promise<Patient> {
  const server = await ownRedis({
    appendonly: 'yes',
    dir: await temporaryFolder(),
    'enable-debug-command': 'local',
  });
  const redis = connectionTo(server.url);
  const workers = await startWorkers({ REDIS_URL: server.url });
  const load = keepAsking(workers.gateway, [await workers.issueKey()], 2, 20);
  const instance = hostOf(workers.adminUrl);
  let slowing: NodeJS.Timeout | undefined;
  cleanUp(() => clearInterval(slowing));
  return {
    gateways: [workers.adminUrl],
    faults: [
      {
        alerts: [{ alertname: 'GatewayAddedLatencyHigh', instance }],
        cause() {
          slowing = setInterval(() => void redis.call('DEBUG', 'SLEEP', '0.15').catch(() => {}), 300);
        },
        async heal() {
          await expect.poll(async () => JSON.stringify(await redis.slowlog('GET'))).toContain('SLEEP');
          clearInterval(slowing);
        },
      },
      {
        alerts: [{ alertname: 'GatewayRedisMemoryHigh' }],
        async cause() {
          const used = Number(/^used_memory:(\d+)/m.exec(await redis.info('memory'))?.[1]);
          await redis.config('SET', 'maxmemory', Math.ceil(used / 0.9));
        },
        heal: () => redis.config('SET', 'maxmemory', 0),
      },
      {
        alerts: [{ alertname: 'GatewayDecisionsLocal', instance }],
        cause: server.stop,
        heal: () => server.restart(),
      },
      {
        alerts: [{ alertname: 'GatewayWorkerCrashes', instance }],
        async cause() {
          await load.stop();
          process.kill(workers.pids()[0] as number, 'SIGKILL');
        },
        heal() {},
      },
    ],
  };
}

/** A gateway with bad plan changes: limits below what clients need, and then bans that come too soon. */
export async function gatewayWithBadPlans(): Promise<Patient> {
  const stack = await startStack();
  for (const plan of ['free', 'pro', 'business']) await stack.admin('PATCH', `/plans/${plan}`, limitOf(1_000_000));
  const asked = [...(await issue(stack, 6, { plan: 'free' })), ...(await issue(stack, 6, { plan: 'pro' }))];
  keepAsking(stack.gateway, asked, 2, 50);
  const many = await issue(stack, 25, { plan: 'business' });
  const change = (plan: string, limits: unknown) => stack.admin('PATCH', `/plans/${plan}`, limits);
  const rollBack = () => stack.admin('POST', '/plans/rollback', {});
  return {
    gateways: [stack.adminUrl],
    cores: [],
    faults: [
      {
        alerts: [{ alertname: 'GatewayPlanRefusals', plan: 'pro' }],
        cause: () => change('pro', { minute: 1 }),
        heal: rollBack,
      },
      {
        alerts: [{ alertname: 'GatewayRefusalsSpike' }],
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
        alerts: [{ alertname: 'GatewayBansSpike' }],
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
