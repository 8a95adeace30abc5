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
