/**
 * The states of keys, and the sort orders of lists of keys. The gateway sorts the keys that one call checks; clients
 * merge these lists by the same rules.
 */

export const KEY_STATES = ['active', 'banned', 'disabled', 'expired', 'unreadable'] as const;

interface Sortable {
  /** In any unit, as long as all times use the same one. */
  readonly createdAt: number;
  /** Undefined for a key that was never used. */
  readonly lastUsedAt: number | undefined;
  readonly name: string;
  /** The used share of the day limit, 0 to 1. */
  readonly dayUsed: number;
}

type Order = (a: Sortable, b: Sortable) => number;

const newest: Order = (a, b) => b.createdAt - a.createdAt;

/** `idle` starts with the key that has been unused the longest. Ties are sorted newest first. */
export const KEY_ORDERS = {
  newest,
  oldest: (a, b) => a.createdAt - b.createdAt,
  name: (a, b) => compareTexts(a.name, b.name) || newest(a, b),
  used: (a, b) => b.dayUsed - a.dayUsed || newest(a, b),
  idle: (a, b) => (a.lastUsedAt ?? 0) - (b.lastUsedAt ?? 0) || newest(a, b),
} as const satisfies Record<string, Order>;

export type KeyOrder = keyof typeof KEY_ORDERS;
export const KEY_ORDER_NAMES = Object.keys(KEY_ORDERS) as KeyOrder[];

/** What `keys top` ranks by. */
export const TOP_BY = ['requests', 'refused'] as const;
export type TopBy = (typeof TOP_BY)[number];

interface Recent {
  readonly recent: { readonly admitted: number; readonly refused: number };
}

export const loudestFirst =
  (by: TopBy) =>
  ({ recent: a }: Recent, { recent: b }: Recent): number =>
    by === 'refused' ? b.refused - a.refused : b.admitted + b.refused - a.admitted - a.refused;

/** Compares code units, ignoring case, so that the order is the same on every machine. */
function compareTexts(a: string, b: string): number {
  const [one, other] = [a.toLowerCase(), b.toLowerCase()];
  return one < other ? -1 : one > other ? 1 : 0;
}
