/**
 * Plans: their fields and defaults, and how the editable table is read. The console's page loads this file too, so it
 * imports nothing.
 */

export const PLAN_NAMES = ['free', 'pro', 'business', 'enterprise'] as const;
export type PlanName = (typeof PLAN_NAMES)[number];

interface Field {
  /** For forms. */
  readonly label: string;
  /** For `--help` and the README. */
  readonly help: string;
  /** A number, 1 to 10^9: the default of each plan. A plan without one does not have the field. */
  readonly defaults?: { readonly [plan in PlanName]?: number };
  /** A choice. The first option is the default. */
  readonly options?: readonly [string, ...string[]];
}

const forAll = (value: number) => ({ free: value, pro: value, business: value, enterprise: value });

/**
 * Every field of a plan by its name in `gateway:plans`, after `<plan>.`. The text for decide.lua, the checks, the admin
 * API, the command line, the console and the README are made from this table. Enterprise has no limits: each of its
 * keys has its own.
 */
export const PLAN_FIELDS = {
  minute: { label: 'Requests a minute', help: 'requests a minute', defaults: { free: 60, pro: 300, business: 1_000 } },
  day: { label: 'Requests a day', help: 'requests a day', defaults: { free: 1_000, pro: 10_000, business: 100_000 } },
  ban_after: {
    label: 'Ban after early requests',
    help: 'early requests, sent before Retry-After said, after which a key is banned ...',
    defaults: { free: 60, pro: 300, business: 1_000, enterprise: 1_000 },
  },
  ban_within_seconds: {
    label: 'within seconds',
    help: '... when they come within so many seconds',
    defaults: forAll(60),
  },
  ban_seconds: {
    label: 'Ban for seconds',
    help: 'length of the first ban; each further one within a day is twice as long',
    defaults: forAll(300),
  },
  mode: {
    label: 'Mode',
    help: 'enforce, or shadow: refuse nothing, count and log it',
    options: ['enforce', 'shadow'],
  },
} as const satisfies Record<string, Field>;

export type PlanField = keyof typeof PLAN_FIELDS;
export const FIELD_NAMES = Object.keys(PLAN_FIELDS) as PlanField[];

type ValueOf<F extends Field> = F extends { readonly options: readonly (infer Option)[] } ? Option : number;

/** The values of a plan. Fields that the plan does not have, and choices that nobody made, are left out. */
export type Plan = { readonly [F in PlanField]?: ValueOf<(typeof PLAN_FIELDS)[F]> };
export type PlanTable = { readonly [plan in PlanName]: Plan };

/** Shadow mode only decides, counts and logs: requests over the limit are admitted. */
export type PlanMode = NonNullable<Plan['mode']>;

/** The stored values of the table: `{ 'free.minute': '60', … }`. */
export type StoredPlans = Readonly<Record<string, string>>;

export const DEFAULT_PLANS = Object.fromEntries(
  PLAN_NAMES.map((plan) => [
    plan,
    Object.fromEntries(
      fieldsOf(plan)
        .map((field) => [field, ruleOf(field).defaults?.[plan]])
        .filter(isSet),
    ),
  ]),
) as unknown as PlanTable;

export const MAX_LIMIT = 1_000_000_000;

export const isPlanName = (name: string): name is PlanName => (PLAN_NAMES as readonly string[]).includes(name);

/** A number typed by a person: plain digits, 1 to 10^9. The parsers of Lua and JavaScript accept nan, 0x3C and 6e1. */
export function parseLimit(text: string): number | undefined {
  if (!/^\d{1,10}$/.test(text)) return undefined;
  const value = Number(text);
  return value >= 1 && value <= MAX_LIMIT ? value : undefined;
}

/** @returns the value of a text in a field; undefined if it is invalid */
export function parseField(field: PlanField, text: string): number | string | undefined {
  const { options } = ruleOf(field);
  return options === undefined ? parseLimit(text) : options.find((option) => option === text);
}

/** The option of a choice that nobody made; undefined for a number. */
function firstOption(field: PlanField): string | undefined {
  return ruleOf(field).options?.[0];
}

/** The value in force of a field. */
export const valueIn = (plan: Plan, field: PlanField): number | string | undefined => plan[field] ?? firstOption(field);

/** The fields of a plan, in the order of the table. */
export function fieldsOf(plan: PlanName): PlanField[] {
  return FIELD_NAMES.filter((field) => ruleOf(field).options !== undefined || ruleOf(field).defaults?.[plan]);
}

/** Every stored name: `<plan>.<field>`. */
export const STORED_FIELDS: readonly string[] = PLAN_NAMES.flatMap((plan) =>
  fieldsOf(plan).map((field) => `${plan}.${field}`),
);

/** The stored text of a name. If no choice is stored, its first option. */
export const storedValue = (stored: StoredPlans, name: string): string | undefined =>
  stored[name] ?? firstOption(fieldIn(name));

/** Whether a text is valid for a stored name. */
export const isUsable = (name: string, text: string): boolean => parseField(fieldIn(name), text) !== undefined;

/** A value that could not be used, and the value that stays in force. */
export interface RejectedValue {
  readonly field: string;
  readonly value: string | undefined;
  readonly kept: number | string | undefined;
}

/** Reads a stored table. An invalid or missing value is reported, and the last valid one stays in force. */
export function readPlans(stored: StoredPlans, last: PlanTable): { table: PlanTable; rejected: RejectedValue[] } {
  const rejected: RejectedValue[] = [];
  const isGone = Object.keys(stored).length === 0;

  function readField(plan: PlanName, field: PlanField): number | string | undefined {
    const name = `${plan}.${field}`;
    const text = stored[name];
    const { options } = ruleOf(field);
    // Nobody deletes the whole table on purpose, but a single missing choice is intended.
    if (text === undefined && options !== undefined) return isGone ? last[plan][field] : undefined;
    const value = parseField(field, text ?? '');
    if (value === undefined) rejected.push({ field: name, value: text, kept: valueIn(last[plan], field) });
    return value ?? last[plan][field];
  }

  const table = PLAN_NAMES.map((plan) => [
    plan,
    Object.fromEntries(
      fieldsOf(plan)
        .map((field) => [field, readField(plan, field)])
        .filter(isSet),
    ),
  ]);
  return { table: Object.fromEntries(table), rejected: [...rejected, ...unknownFields(stored)] };
}

/** A misspelt field would otherwise be ignored silently. */
function unknownFields(stored: StoredPlans): RejectedValue[] {
  const unknown = Object.entries(stored).filter(([name]) => !STORED_FIELDS.includes(name));
  return unknown.map(([name, value]) => ({ field: name, value, kept: undefined }));
}

/** The table in its stored form. */
export function storedPlans(table: PlanTable): StoredPlans {
  const entries = PLAN_NAMES.flatMap((plan) =>
    Object.entries(table[plan]).map(([field, value]) => [`${plan}.${field}`, String(value)]),
  );
  return Object.fromEntries(entries);
}

/** The table in the form that decide.lua reads: `\nfree minute=60 day=1000 …\npro …`. */
export const planText = (table: PlanTable): string =>
  PLAN_NAMES.map((plan) => {
    const fields = Object.entries(table[plan]).filter(isSet);
    return `\n${plan} ${fields.map(([field, value]) => `${field}=${value}`).join(' ')}`;
  }).join('');

function ruleOf(field: PlanField): Field {
  return PLAN_FIELDS[field];
}

const fieldIn = (name: string): PlanField => name.slice(name.indexOf('.') + 1) as PlanField;

function isSet(entry: readonly unknown[]): boolean {
  return entry[1] !== undefined;
}
