import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readCoreSettings } from '../../core/config.ts';
import { startCore } from '../../core/core.ts';
import { readGatewaySettings } from '../../gateway/config.ts';
import { createLogger } from '../../shared/process/logger.ts';
import { startGateway } from '../support/one-process.ts';

/** A gateway with 35 days of usage and a busy hour. Moving the clock forward creates this data in seconds. */

export interface Demo {
  readonly gateway: string;
  readonly adminUrl: string;
  /** The keys by their owners' names. */
  readonly keys: ReadonlyMap<string, IssuedKey>;
  /** The time of the demo, in Unix ms. */
  now(): number;
  stop(): Promise<void>;
}

interface IssuedKey {
  readonly id: string;
  readonly key: string;
}

export const DEMO_TOKEN = 'token-of-the-demo';
const [MINUTE_MS, DAY_MS] = [60_000, 86_400_000];
const [DAYS, MINUTES] = [35, 60];

/** The number of requests with each key on a day, and in a minute of the last hour. */
const CLIENTS = [
  { name: 'acme web shop', plan: 'pro', aDay: 600, aMinute: 24 },
  { name: 'globex warehouse', plan: 'business', aDay: 90, aMinute: 42 },
  { name: 'initech mobile', plan: 'free', aDay: 30, aMinute: 13 },
  { name: 'umbrella scraper', plan: 'free', aDay: 20, aMinute: 95 },
  { name: 'hooli search', plan: 'enterprise', minute: 5_000, day: 500_000, aDay: 40, aMinute: 18 },
  { name: 'wayne analytics', plan: 'pro', aDay: 25, aMinute: 6 },
  { name: 'stark test bench', plan: 'free', aDay: 3, aMinute: 1 },
  { name: 'soylent kitchen', plan: 'free', aDay: 5, aMinute: 0 },
] as const;

/** Replaces `Date`, which every clock in this process reads. @returns a function that moves the time forward */
function takeOverTime(startsAt: number): (ms: number) => void {
  const RealDate = Date;
  let offset = startsAt - RealDate.now();
  const now = () => RealDate.now() + offset;
  globalThis.Date = class extends RealDate {
    constructor(...given: unknown[]) {
      super(...((given.length === 0 ? [now()] : given) as [number]));
    }
    static override now = now;
  } as DateConstructor;
  return (ms) => {
    offset += ms;
  };
}

/** Starts the demo on free ports of loopback, with all data in a folder that `stop` deletes. */
export async function startDemo(): Promise<Demo> {
  const moveOn = takeOverTime(Date.now() - DAYS * DAY_MS - MINUTES * MINUTE_MS);
  const directory = await mkdtemp(join(tmpdir(), 'animal-store-demo-'));
  const logger = createLogger('demo', 'silent');
  const core = await startCore(readCoreSettings({ DATABASE_URL: `sqlite:${directory}/store.db`, PORT: '0' }), logger);
  const settings = {
    CORE_URL: core.addresses.core,
    ADMIN_TOKEN: DEMO_TOKEN,
    DATA_DIR: directory,
    PORT: '0',
    ADMIN_PORT: '0',
  };
  const running = await startGateway(readGatewaySettings(settings), logger);
  const { gateway = '', admin: adminUrl = '' } = running.addresses;

  async function admin(method: string, path: string, body?: unknown): Promise<Record<string, string>> {
    const headers = { authorization: `Bearer ${DEMO_TOKEN}`, 'content-type': 'application/json' };
    const response = await fetch(adminUrl + path, {
      method,
      headers,
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    return (await response.json().catch(() => ({}))) as Record<string, string>;
  }

  const keys = new Map<string, IssuedKey>();
  for (const { aDay: _, aMinute: __, ...key } of CLIENTS) {
    const { id = '', key: apiKey = '' } = await admin('POST', '/keys', key);
    keys.set(key.name, { id, key: apiKey });
  }
  const idOf = (name: string) => keys.get(name)?.id ?? '';
  const send = async (name: string, times: number) => {
    const headers = { authorization: `Bearer ${keys.get(name)?.key}` };
    for (let sent = 0; sent < times; sent += 20)
      await Promise.all(
        Array.from({ length: Math.min(20, times - sent) }, () =>
          fetch(`${gateway}/v1/pets`, { headers }).then((answer) => answer.arrayBuffer()),
        ),
      );
  };

  for (let day = 0; day < DAYS; day++) {
    const isWeekend = new Date().getUTCDay() % 6 === 0;
    for (const [at, { name, aDay }] of CLIENTS.entries())
      await send(name, Math.round(aDay * (isWeekend ? 0.4 : 0.8 + 0.3 * Math.sin(day + at))));
    moveOn(DAY_MS);
  }
  await admin('PATCH', '/plans/pro', { minute: 240, author: 'ben', reason: 'less for a day, to see who notices' });
  for (let minute = 0; minute < MINUTES; minute++) {
    for (const [at, { name, aMinute }] of CLIENTS.entries()) {
      const isQuiet = name === 'umbrella scraper' && (minute < 22 || minute > 52);
      await send(name, isQuiet ? 0 : Math.round(aMinute * (0.8 + 0.25 * Math.sin(minute / 5 + at))));
    }
    if (minute === 30)
      await admin('PATCH', '/plans/pro', { minute: 300, author: 'anna', reason: 'acme asked for more' });
    if (minute === 40)
      await admin('PUT', `/keys/${idOf('wayne analytics')}/ban`, {
        seconds: 7_200,
        reason: 'leaked in a public repository',
      });
    moveOn(MINUTE_MS);
    await admin('GET', '/traffic/minutes');
  }
  await admin('PATCH', `/keys/${idOf('initech mobile')}`, { day: 700 });
  await admin('PATCH', `/keys/${idOf('soylent kitchen')}`, { disabled: true });
  await admin('POST', `/keys/${idOf('acme web shop')}/secrets`, {
    name: 'reporting',
    scope: ['read'],
    networks: ['10.0.0.0/8'],
  });
  return {
    gateway,
    adminUrl,
    keys,
    now: () => Date.now(),
    async stop() {
      await running.stop(0);
      await core.stop(0);
      await rm(directory, { recursive: true, force: true });
    },
  };
}
