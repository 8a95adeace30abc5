import { describe, expect, test } from 'vitest';
import type { KeyEntry } from '../../gateway/limiter/key-record.ts';
import { NO_REFUSALS } from '../../gateway/limiter/refusals.ts';
import { bothLimiters, burst, decision, SECOND } from '../support/limiters.ts';
import { emptyDatabase } from '../support/redis-database.ts';

/** The effect of a clock change on levels, bans and waiting clients. */

const { url } = await emptyDatabase();
const HOUR = 3_600 * SECOND;
const DAY = 24 * HOUR;

describe.for(bothLimiters(url))('%s', ([, open]) => {
  test.for([
    [HOUR * 24, 'a day ahead'],
    [-HOUR * 24, 'a day back'],
    [HOUR, 'an hour ahead'],
  ] as const)('a clock that was %2$s gives away at most one capacity and stalls nobody', async ([step]) => {
    const under = await open();
    under.setPlan('free', { minute: 2 });
    const credential = await under.createKey();
    const right = under.now;
    under.now = right + step;
    await burst(under, credential, 3);
    under.now = right;
    const atOnce = await burst(under, credential, 10);
    expect(['admitted×2 refused×8', 'refused×10']).toContain(atOnce);
    under.now += 30 * SECOND;
    expect(await burst(under, credential, 1)).toBe('admitted×1');
  });

  test.for([
    [HOUR, 'an hour'],
    [30 * DAY, '30 days'],
    [300_000, '0.3 s'],
  ] as const)('a ban does not last longer when the clock is set back by $1', async ([step]) => {
    const under = await open();
    under.setPlan('free', { minute: 1, ban_after: 2, ban_grace_seconds: 0, ban_seconds: 4 });
    const credential = await under.createKey();
    await burst(under, credential, 3);
    expect((await decision(under, credential)).outcome).toBe('banned');
    under.now -= step;
    const ban = await decision(under, credential);
    expect([ban.outcome, ban.bannedUntil - under.now]).toEqual(['banned', 4 * SECOND]);
    under.now += 2 * SECOND;
    expect((await decision(under, credential)).bannedUntil - under.now).toBe(2 * SECOND);
    under.now += 2 * SECOND;
    expect((await decision(under, credential)).outcome).toBe('refused');
    under.now -= step;
    expect((await decision(under, credential)).outcome).toBe('refused');
  });

  test("an operator's ban lasts until its end, whatever the clock does", async () => {
    const under = await open();
    const credential = await under.createKey();
    await decision(under, credential);
    const until = under.now + 2 * HOUR;
    await under.keys.change(credential.id, () => ({ ban: { text: 'scrapes', until } }));
    under.now -= HOUR;
    for (let asked = 0; asked < 2; asked++) expect((await decision(under, credential)).bannedUntil).toBe(until);
  });

  test("a line lasts no longer when the clock is set back during an operator's ban", async () => {
    const under = await open();
    under.setPlan('free', { minute: 2 });
    const credential = await under.createKey();
    const told = async () => ((await decision(under, credential)).retryAt ?? 0) - under.now;
    expect(await burst(under, credential, 2)).toBe('admitted×2');
    expect(await told()).toBe(30 * SECOND);
    const until = under.now + 10 * SECOND;
    await under.keys.change(credential.id, () => ({ ban: { text: 'scrapes', until } }));
    under.now -= HOUR;
    expect((await decision(under, credential)).outcome).toBe('banned');
    under.now = until;
    expect(await burst(under, credential, 2)).toBe('admitted×2');
    expect(await told()).toBe(30 * SECOND);
  });

  test('strikes, and since when they are full, move back with the clock', async () => {
    const under = await open();
    under.setPlan('free', { minute: 60, ban_after: 80, ban_grace_seconds: 5 });
    const credential = await under.createKey();
    expect(await burst(under, credential, 150)).toBe('admitted×60 refused×90');
    under.now -= HOUR;
    expect(await burst(under, credential, 1)).toBe('refused×1');
    under.now += 5 * SECOND;
    // Five tokens have come and forty strikes are forgotten, so the 41st refusal finds them full.
    expect(await burst(under, credential, 46)).toBe('admitted×5 refused×40 banned×1');
    const { refusals } = (await under.keys.get(credential.id)) as KeyEntry;
    expect(refusals).toEqual(NO_REFUSALS);
  });

  test('waiters are admitted at the told time after the clock was visibly set back', async () => {
    const under = await open();
    under.setPlan('free', { minute: 60 });
    const credential = await under.createKey();
    expect(await burst(under, credential, 62)).toBe('admitted×60 refused×2');
    under.now -= 950_000;
    expect(await burst(under, credential, 1)).toBe('refused×1');
    under.now += SECOND;
    expect(await burst(under, credential, 1)).toBe('admitted×1');
    expect((await under.keys.get(credential.id))?.bannedUntil).toBe(0);
  });
});
