import { expect, test } from 'vitest';
import { bothLimiters, burst, decision, SECOND } from '../support/limiters.ts';
import { emptyDatabase } from '../support/redis-database.ts';

/** Rules that the random histories of model.test.ts are rarely long enough to reach. */

const { url } = await emptyDatabase();
const DAY = 86_400 * SECOND;

test.for(bothLimiters(url))(
  '%s: a ban expires on time, and the next one within a day lasts twice as long, up to a day',
  async ([, open]) => {
    const under = await open();
    under.setPlan('free', { minute: 1, ban_after: 1, ban_grace_seconds: 0, ban_seconds: 30_000 });
    const credential = await under.createKey();
    const lengths: number[] = [];
    for (const pause of [0, DAY - 120 * SECOND, 0, 0, DAY]) {
      under.now += pause;
      expect(await burst(under, credential, 2)).toBe('admitted×1 refused×1');
      const ban = await decision(under, credential);
      lengths.push((ban.bannedUntil - under.now) / SECOND);
      under.now = ban.bannedUntil - 1;
      expect((await decision(under, credential)).outcome).toBe('banned');
      under.now = ban.bannedUntil;
    }
    expect(lengths).toEqual([30_000, 60_000, 86_400, 86_400, 30_000]);
  },
);

test.for(bothLimiters(url))('%s: a first ban of more than a day lasts as long as its plan says', async ([, open]) => {
  const under = await open();
  under.setPlan('free', { minute: 1, ban_after: 1, ban_grace_seconds: 0, ban_seconds: 200_000 });
  const credential = await under.createKey();
  await burst(under, credential, 2);
  expect((await decision(under, credential)).bannedUntil - under.now).toBe(200_000 * SECOND);
});

test.for(bothLimiters(url))(
  "%s: an operator's ban does not resume a series of bans that has ended",
  async ([, open]) => {
    const under = await open();
    under.setPlan('free', { minute: 1, ban_after: 1, ban_grace_seconds: 0, ban_seconds: 300 });
    const credential = await under.createKey();
    const ban = async () => {
      await burst(under, credential, 2);
      const { bannedUntil } = await decision(under, credential);
      const length = (bannedUntil - under.now) / SECOND;
      under.now = bannedUntil;
      return length;
    };
    const banByHand = async () => {
      const until = under.now + 60 * SECOND;
      await under.keys.change(credential.id, () => ({ ban: { until, text: 'by hand' } }));
      expect((await decision(under, credential)).bannedUntil).toBe(until);
      under.now = until;
    };
    expect([await ban(), await ban(), await ban()]).toEqual([300, 600, 1_200]);
    under.now += 3 * DAY;
    await banByHand();
    expect([await ban(), await ban()]).toEqual([300, 600]);
    // A series that has not ended continues.
    await banByHand();
    expect(await ban()).toBe(1_200);
  },
);

test.for(bothLimiters(url))(
  '%s: clients in line are not banned for their strikes after their limit was more than halved',
  async ([, open]) => {
    for (const [minute, isBanned] of [
      [10, true],
      [9, false],
    ] as const) {
      const under = await open();
      under.setPlan('free', { minute: 20, ban_after: 5, ban_grace_seconds: 0 });
      const credential = await under.createKey();
      await burst(under, credential, 25);
      under.setPlan('free', { minute });
      const outcomes = await burst(under, credential, 100);
      expect([minute, outcomes.includes('banned')]).toEqual([minute, isBanned]);
    }
  },
);
