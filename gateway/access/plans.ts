/** Plans: what they hold, what they start with, and how the table that people edit is read. */

export const PLAN_NAMES = ['free', 'pro', 'business', 'enterprise'] as const;
export type PlanName = (typeof PLAN_NAMES)[number];

/** Field names as they stand in `gateway:plans`, behind `<plan>.`. */
export const PLAN_FIELDS = ['minute', 'day', 'ban_after', 'ban_within_seconds', 'ban_seconds'] as const;
export type PlanField = (typeof PLAN_FIELDS)[number];

/**
 * Whether limits are enforced, as they are where none is said; or, in shadow, only decided, counted and logged: what they
 * would refuse goes through.
 */
export const PLAN_MODES = ['enforce', 'shadow'] as const;
export type PlanMode = (typeof PLAN_MODES)[number];

/**
 * Requests per minute and per day; and after how many early requests, sent before Retry-After said, within how many seconds
 * a key is banned for how long (queue.ts).
 */
export type Limits = { readonly [field in PlanField]?: number };
export type Plan = Limits & { readonly mode?: PlanMode };
export type PlanTable = { readonly [plan in PlanName]: Plan };

/** The values of the table as they are stored: `{ 'free.minute': '60', … }`. */
export type StoredPlans = Readonly<Record<string, string>>;

/** Enterprise has no limits of its own: each of its keys carries them. */
export const DEFAULT_PLANS: PlanTable = {
  free: { minute: 60, day: 1_000, ban_after: 60, ban_within_seconds: 60, ban_seconds: 300 },
  pro: { minute: 300, day: 10_000, ban_after: 300, ban_within_seconds: 60, ban_seconds: 300 },
  business: { minute: 1_000, day: 100_000, ban_after: 1_000, ban_within_seconds: 60, ban_seconds: 300 },
  enterprise: { ban_after: 1_000, ban_within_seconds: 60, ban_seconds: 300 },
};

export const MAX_LIMIT = 1_000_000_000;

export const isPlanName = (name: string): name is PlanName => (PLAN_NAMES as readonly string[]).includes(name);

/** A number that a person typed: plain digits, 1 to 10^9. Lua's and JavaScript's own readers take nan, 0x3C and 6e1. */
export function parseLimit(text: string): number | undefined {
  if (!/^\d{1,10}$/.test(text)) return undefined;
  const value = Number(text);
  return value >= 1 && value <= MAX_LIMIT ? value : undefined;
}

const parseMode = (text: string): PlanMode | undefined => PLAN_MODES.find((mode) => mode === text);

/** A field of the table with a name as it is stored, behind `<plan>.`: of the table, not of one plan. */
const modeOf = (name: PlanName): string => `${name}.mode`;

/** The text that stands for a field, or would: a plan is enforced where none says how it is. */
export const storedValue = (stored: StoredPlans, field: string): string | undefined =>
  stored[field] ?? (field.endsWith('.mode') ? 'enforce' : undefined);

/** Whether a text could be in force in a field. */
export const isUsable = (field: string, text: string): boolean =>
  (field.endsWith('.mode') ? parseMode(text) : parseLimit(text)) !== undefined;

/** A value that could not be used, and what stays in its place. */
export interface RejectedValue {
  readonly field: string;
  readonly value: string | undefined;
  readonly kept: number | string | undefined;
}

/** The table that a stored one means. Each value that is no limit, or is gone, is reported and the last good one stays. */
export function readPlans(stored: StoredPlans, last: PlanTable): { table: PlanTable; rejected: RejectedValue[] } {
  const rejected: RejectedValue[] = [];

  function readField(name: PlanName, field: PlanField): number | undefined {
    const key = `${name}.${field}`;
    const limit = parseLimit(stored[key] ?? '');
    if (limit === undefined) rejected.push({ field: key, value: stored[key], kept: last[name][field] });
    return limit ?? last[name][field];
  }

  function readMode(name: PlanName): PlanMode | undefined {
    const text = stored[modeOf(name)];
    // A table that is gone altogether is no wish of anyone's.
    if (text === undefined) return Object.keys(stored).length === 0 ? last[name].mode : undefined;
    const mode = parseMode(text);
    if (mode === undefined) rejected.push({ field: modeOf(name), value: text, kept: last[name].mode ?? 'enforce' });
    return mode ?? last[name].mode;
  }

  function readPlan(name: PlanName): Plan {
    const mode = readMode(name);
    const limits = Object.fromEntries(fieldsOf(name).map((field) => [field, readField(name, field)]));
    return mode === undefined ? limits : { ...limits, mode };
  }

  const table = Object.fromEntries(PLAN_NAMES.map((name) => [name, readPlan(name)])) as unknown as PlanTable;
  return { table, rejected: [...rejected, ...unknownFields(stored)] };
}

/** The limits that a plan has. */
export const fieldsOf = (name: PlanName): PlanField[] => Object.keys(DEFAULT_PLANS[name]) as PlanField[];

/** A misspelt field would otherwise change nothing without a word. */
function unknownFields(stored: StoredPlans): RejectedValue[] {
  const unknown = Object.entries(stored).filter(([field]) => !STORED_FIELDS.includes(field));
  return unknown.map(([field, value]) => ({ field, value, kept: undefined }));
}

/** Every field of the table by its stored name. */
export const STORED_FIELDS: readonly string[] = PLAN_NAMES.flatMap((name) => [
  ...fieldsOf(name).map((field) => `${name}.${field}`),
  modeOf(name),
]);

/** The table as it is stored. */
export function storedPlans(table: PlanTable): StoredPlans {
  const entries = PLAN_NAMES.flatMap((name) =>
    Object.entries(table[name]).map(([field, value]) => [`${name}.${field}`, String(value)]),
  );
  return Object.fromEntries(entries);
}
