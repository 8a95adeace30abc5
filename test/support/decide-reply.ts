/**
 * Reads decide.lua's verdicts without the product's code. Times are Unix microseconds. A fraction is a number of ticks;
 * a token has one tick per microsecond of its window.
 */

const TICKS = { second: 1_000_000, minute: 60_000_000, day: 86_400_000_000 } as const;

/** Reads a decimal as whole units and ticks of a unit. For a negative decimal, the whole units are rounded down. */
function inTicks(text: string, unit: number): [whole: number, ticks: number] {
  const [whole = '', decimals = ''] = text.split('.');
  const ticks = Math.round(Number(`0.${decimals}`) * unit);
  return whole.startsWith('-') && ticks > 0 ? [Number(whole) - 1, unit - ticks] : [Number(whole), ticks];
}

function readBucket(text = '', window: number) {
  const [level = '', limit] = text.split('/');
  const [tokens, fraction] = inTicks(level, window);
  return { limit: Number(limit), tokens, fraction };
}

/** Returns undefined for a reply without levels, which is a single word. */
export function readReply(text: string) {
  const [outcome = '', plan, now = '', minute, day, bannedUntil, retryAt, endsAt, , own = ''] = text.split(' ');
  if (plan === undefined) return undefined;
  const [seconds, ticks] = inTicks(now, TICKS.second);
  return {
    outcome,
    plan,
    now: seconds * TICKS.second + ticks,
    buckets: [readBucket(minute, TICKS.minute), readBucket(day, TICKS.day)] as const,
    bannedUntil: Number(bannedUntil),
    retryAt: Number(retryAt),
    endsAt: Number(endsAt),
    isBannedByOperator: own.includes('b'),
  };
}
