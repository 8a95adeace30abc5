import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import type { CheckResult } from '../../gateway/check-result.ts';
import { FAILED_REQUESTS } from '../support/browser.ts';
import { openConsole } from '../support/console.ts';
import { ctl } from '../support/ctl.ts';
import { send } from '../support/http.ts';
import { startService } from '../support/process.ts';
import { ownRedis } from '../support/redis-database.ts';
import { ADMIN_TOKEN, temporaryFolder } from '../support/stack.ts';
import { signalAll, startWorkers } from '../support/workers.ts';

/**
 * Each part of a system hangs in turn. Within four seconds, the console's banner and Health page, the doctor and the
 * readiness probe must all report it.
 */

vi.setConfig({ testTimeout: 300_000 });

const HUNG_MS = 4_000;

test('a part that stops responding is never reported as healthy until it responds again', async () => {
  const redis = await ownRedis();
  const core = await startService('core/main.ts', {
    PORT: '0',
    DATABASE_URL: `sqlite:${await temporaryFolder()}/store.db`,
  });
  const gateway = await startWorkers({
    REDIS_URL: redis.url,
    REDIS_TIMEOUT_MS: '250',
    CORE_URL: core.addresses.core ?? '',
    WORKERS: '2',
  });
  const { adminUrl } = gateway;
  const { page, excuse } = await openConsole({ adminUrl });
  excuse(FAILED_REQUESTS);
  await page.getByRole('link', { name: 'Health' }).click();
  const banner = page.locator('#state');
  const isWell = () =>
    vi.waitFor(async () => expect(await banner.innerText()).toMatch(/All well/), { timeout: 60_000, interval: 200 });
  /** The cards of the Health page about each part. */
  const cards = async () => ({
    redis: await page.getByRole('region', { name: 'Redis and the plan table' }).innerText(),
    core: await page.getByRole('region', { name: 'Cores' }).innerText(),
    'worker 1': await page.getByRole('region', { name: 'Workers' }).innerText(),
    checks: await page.getByRole('region', { name: 'Checks' }).innerText(),
    decisions: await page.getByRole('region', { name: 'This gateway' }).innerText(),
  });
  const seen = async () => ({
    cards: await cards(),
    banner: await banner.innerText(),
    doctor: (
      (await send(`${adminUrl}/doctor`, { key: ADMIN_TOKEN })).json as { findings: CheckResult[] }
    ).findings.filter(({ status }) => status === 'fault' || status === 'unknown'),
    ready: (await send(`${adminUrl}/readyz`)).json as { detail?: string; message?: string },
    command: await ctl({ adminUrl } as never, 'doctor'),
  });

  const parts = {
    redis: { stop: () => redis.pause(), go: () => redis.resume() },
    core: {
      stop: () => process.kill(core.child.pid as number, 'SIGSTOP'),
      go: () => process.kill(core.child.pid as number, 'SIGCONT'),
    },
    'worker 1': {
      stop: () => process.kill(gateway.pids()[0] as number, 'SIGSTOP'),
      // The primary may have replaced the worker.
      go: () => process.kill(gateway.pids()[0] as number, 'SIGCONT'),
    },
  };
  for (const [name, { stop, go }] of Object.entries(parts)) {
    await isWell();
    stop();
    try {
      await sleep(HUNG_MS);
      const { cards: shownCards, banner: shown, doctor, ready, command } = await seen();
      expect([name, shownCards[name as keyof typeof shownCards]]).toEqual([
        name,
        expect.stringMatching(/Unknown|Fault|0 of 2 workers connected/),
      ]);
      expect([name, shownCards.checks]).toEqual([
        name,
        expect.stringMatching(new RegExp(`${name}.*\\s+(Unknown|Fault)`)),
      ]);
      if (name === 'worker 1') expect(shownCards.decisions).toMatch(/1 of 2 workers running/);
      const about = name === 'core' ? `core ${core.addresses.core}` : name;
      const unknown = expect.objectContaining({ about, status: 'unknown', since: expect.stringMatching(/Z$/) });
      expect([name, doctor]).toEqual([name, expect.arrayContaining([unknown])]);
      if (name === 'redis') expect(shownCards.decisions).toMatch(/Decisions\s+(Unknown|Local)/);
      expect([name, shown]).toEqual([name, expect.not.stringMatching(/All well/)]);
      expect([name, doctor.map(({ about }) => about)]).toEqual([
        name,
        expect.arrayContaining([expect.stringContaining(name)]),
      ]);
      expect([name, ready.detail ?? ready.message]).toEqual([name, expect.stringContaining(name)]);
      expect([name, command.code, command.out]).toEqual([name, 1, expect.stringContaining(name)]);
    } finally {
      go();
    }
  }

  await isWell();
  signalAll(gateway.child.pid as number, 'SIGSTOP');
  try {
    await sleep(HUNG_MS);
    expect(await banner.innerText()).toMatch(/No response[\s\S]*Since \d\d:\d\d/);
    const shown = await page.locator('#main').innerText();
    expect(shown).toMatch(/this gateway\s+Unknown\s+does not respond/);
    expect(shown).not.toMatch(/Exact|Good|Connected|Up\b/);
  } finally {
    signalAll(gateway.child.pid as number, 'SIGCONT');
  }
  await isWell();
});
