import { harmless, table } from '../table.ts';
import { colour, type Style } from './session.ts';

/** API keys in words. */

/** A key as the admin API describes it. */
export interface KeyView {
  readonly id: string;
  readonly name: string;
  readonly plan: string;
  readonly minute?: number;
  readonly day?: number;
  readonly state: string;
  readonly createdAt: string;
  readonly expiresAt?: string;
  readonly oldSecretUntil?: string;
  readonly bannedUntil?: string;
  readonly banReason?: string;
  readonly bans: number;
  readonly admitted: number;
  readonly refused: number;
  /** Of those admitted, by a plan in shadow mode. */
  readonly shadowed?: number;
  readonly buckets?: { readonly minute: BucketView; readonly day: BucketView };
}

interface BucketView {
  readonly limit: number;
  readonly remaining: number;
  readonly used: number;
  /** Undefined for a bucket that is full. */
  readonly fullAt?: string;
}

const STATES: Readonly<Record<string, Style>> = { active: 'green', banned: 'red', unreadable: 'red' };

const paintState = (text: string, column: string): string =>
  column === 'state' ? colour(STATES[text.trim()] ?? 'yellow', text) : text;

export function describeKeys(views: readonly KeyView[]): string {
  const head = ['id', 'name', 'plan', 'state', 'minute', 'day', 'admitted', 'refused', 'created', 'expires'];
  const rows = views.map((key) => [
    key.id,
    key.name,
    key.plan,
    key.state,
    key.minute,
    key.day,
    key.admitted,
    key.refused,
    key.createdAt,
    key.expiresAt ?? '-',
  ]);
  return table(head, rows, paintState);
}

export function describeBans(views: readonly KeyView[]): string {
  const rows = views.map((key) => [key.id, key.name, key.plan, key.bannedUntil, key.bans, key.banReason ?? '-']);
  return table(['id', 'name', 'plan', 'until', 'bans', 'reason'], rows);
}

/** One key, with its buckets as they stood when it was asked for. */
export function describeKey(key: KeyView): string {
  const ban = key.bannedUntil && `${key.bannedUntil}${key.banReason === undefined ? '' : ` (${key.banReason})`}`;
  const facts: [name: string, fact: string | undefined][] = [
    ['id', key.id],
    ['name', key.name],
    ['plan', key.plan],
    ['state', colour(STATES[key.state] ?? 'yellow', key.state)],
    ['created', key.createdAt],
    ['expires', key.expiresAt],
    ['old secret until', key.oldSecretUntil],
    ['banned until', ban],
    ['own limits', ownLimits(key)],
    ['admitted, refused', `${key.admitted}, ${key.refused}`],
    ['shadow refusals', key.shadowed?.toString()],
  ];
  const known = facts.filter((fact): fact is [string, string] => fact[1] !== undefined);
  const lines = known.map(([name, fact]) => `${name.padEnd(18)}${name === 'state' ? fact : harmless(fact)}`);
  return key.buckets === undefined ? lines.join('\n') : `${lines.join('\n')}\n\n${describeBuckets(key.buckets)}`;
}

function ownLimits({ minute, day }: KeyView): string | undefined {
  if (minute === undefined && day === undefined) return undefined;
  return `minute ${minute ?? 'as the plan'}, day ${day ?? 'as the plan'}`;
}

function describeBuckets(buckets: Readonly<Record<string, BucketView>>): string {
  const rows = Object.entries(buckets).map(([name, { limit, used, remaining, fullAt }]) => [
    name,
    limit,
    used,
    remaining,
    fullAt ?? 'now',
  ]);
  return table(['bucket', 'limit', 'used', 'left', 'full again'], rows);
}
