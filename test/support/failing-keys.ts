import type { Redis } from 'ioredis';
import { expect } from 'vitest';
import { idOf } from './api-key.ts';
import { ctl } from './ctl.ts';
import { type Patient, persist } from './patient.ts';
import { hostOf } from './prometheus.ts';
import { startStack } from './stack.ts';

/** Its keys are damaged by hand, lost, and used from elsewhere. */
export async function gatewayWithBadKeys({ url, redis }: { url: string; redis: Redis }): Promise<Patient> {
  const stack = await startStack({ REDIS_URL: url, REDIS_TIMEOUT_MS: '5000' });
  // With a plan whose limits are used when its own are unusable.
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
