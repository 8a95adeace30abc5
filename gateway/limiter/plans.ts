/**
 * Plans: their fields and defaults, and how the plan table is read. The console's page loads this file too, so it
 * imports nothing.
 */

export const PLAN_NAMES = ['free', 'pro', 'business', 'enterprise'] as const;
export type PlanName = (typeof PLAN_NAMES)[number];

interface Field {
  readonly label: string;
  /** The text for `--help` and deploy/SETTINGS.md. */
  readonly help: string;
  /** The default value of a numeric field, by plan. */
  readonly defaults?: { readonly [plan in PlanName]?: number };
  /** The bounds of a number: 1 and 10^9 if they are left out. */
  readonly least?: number;
  readonly most?: number;
  /** Set for a number that must be stored: a missing one is a bad value. Plans not in `defaults` lack the field. */
  readonly isRequired?: true;
  /** The value in force while an optional number without a default is absent. */
  readonly absent?: string;
  /** A choice. The first option is the default. */
  readonly options?: readonly [string, ...string[]];
  /** The text below a choice in a form. */
  readonly hint?: string;
}

const forAll = (value: number) => ({ free: value, pro: value, business: value, enterprise: value });

/**
 * Every field of a plan by its name in `gateway:plans`, after `<plan>.`. The text for decide.lua, the checks, the admin
 * API, the command line, the console and deploy/SETTINGS.md derive from this table. A number is optional unless
 * `isRequired` is set, so that a table stored before the field existed is still complete. Enterprise has no limits:
 * each of its keys has its own.
 */
export const PLAN_FIELDS = {
  minute: {
    label: 'Requests per minute',
    help: 'requests per minute',
    defaults: { free: 60, pro: 300, business: 1_000 },
    isRequired: true,
  },
  day: {
    label: 'Requests per day',
    help: 'requests per day',
    defaults: { free: 1_000, pro: 10_000, business: 100_000 },
    isRequired: true,
  },
  ban_after: {
    label: 'Ban after strikes',
    help: 'maximum number of strikes per key. Each refused request adds one; they expire at eight times the rate of the minute limit',
    absent: '5 × minute',
  },
  ban_grace_seconds: {
    label: 'Grace period before a ban in seconds',
    help: 'how long strikes must stay at the maximum before a refusal bans the key; with 0, the first refusal at the maximum bans it',
    defaults: forAll(30),
    least: 0,
  },
  ban_seconds: {
    label: 'Length of the first ban in seconds',
    help: 'length of the first ban; further bans within a day double it, up to a day',
    defaults: forAll(300),
    isRequired: true,
  },
  mode: {
    label: 'Mode',
    help: 'enforce, or shadow: refuse nothing, but count and log what would be refused',
    options: ['enforce', 'shadow'],
    hint: 'Shadow: refuse nothing, but count and log what would be refused.',
  },
} as const satisfies Record<string, Field>;

export type PlanField = keyof typeof PLAN_FIELDS;
export const FIELD_NAMES = Object.keys(PLAN_FIELDS) as PlanField[];

type ValueOf<F extends Field> = F extends { readonly options: readonly (infer Option)[] } ? Option : number;

/** The values of a plan. It omits fields that the plan does not have and choices that are not set. */
export type Plan = { readonly [F in PlanField]?: ValueOf<(typeof PLAN_FIELDS)[F]> };
export type PlanTable = { readonly [plan in PlanName]: Plan };

/** What a limiter reads before each decision. */
export interface PlansInForce {
  /** Undefined until a table has been read. */
  readonly table: PlanTable | undefined;
}

/** The stored values of the table: `{ 'free.minute': '60', … }`. In a change, undefined removes a value. */
export type StoredPlans = Readonly<Record<string, string | undefined>>;

export const MAX_LIMIT = 1_000_000_000;

export const DEFAULT_PLANS = tableOf((plan, field) => ruleOf(field).defaults?.[plan]);

/** A table with these values, without the undefined ones. */
function tableOf(value: (plan: PlanName, field: PlanField) => number | string | undefined): PlanTable {
  const plans = PLAN_NAMES.map((plan) => {
    const values = fieldsOf(plan).map((field) => [field, value(plan, field)]);
    return [plan, Object.fromEntries(values.filter(isSet))];
  });
  return Object.fromEntries(plans);
}

export const isPlanName = (name: string): name is PlanName => (PLAN_NAMES as readonly string[]).includes(name);

export const isLimit = (value: number): boolean => value >= 1 && value <= MAX_LIMIT;

/** A number typed by a person: plain digits, 1 to 10^9. The parsers of Lua and JavaScript accept nan, 0x3C and 6e1. */
export function parseLimit(text: string): number | undefined {
  const value = /^\d{1,10}$/.test(text) ? Number(text) : 0;
  return isLimit(value) ? value : undefined;
}

/** The declaration of a field. */
export function ruleOf(field: PlanField): Field & Required<Pick<Field, 'least' | 'most'>> {
  return { least: 1, most: MAX_LIMIT, ...PLAN_FIELDS[field] };
}

/** The valid values of a field, in words that follow `must be`. @param write formats a number */
export function rangeOf(field: PlanField, write: (value: number) => string = String): string {
  const { options, least, most } = ruleOf(field);
  return options === undefined
    ? `a whole number from ${write(least)} to ${write(most)}`
    : `one of ${options.join(', ')}`;
}

/** @returns the value that a string stands for; undefined if it is invalid */
export function parseField(field: PlanField, text: string): number | string | undefined {
  const { options, least, most } = ruleOf(field);
  if (options !== undefined) return options.find((option) => option === text);
  const value = /^0{1,10}$/.test(text) ? 0 : parseLimit(text);
  return value !== undefined && value >= least && value <= most ? value : undefined;
}

function firstOption(field: PlanField): string | undefined {
  return ruleOf(field).options?.[0];
}

/** The value in force for a field; undefined for a number that is absent. */
export const valueIn = (plan: Plan, field: PlanField): number | string | undefined => plan[field] ?? firstOption(field);

/** The value in force while a number is absent; undefined for a required number. */
export function whenAbsent(field: PlanField): string | undefined {
  const { options, defaults = {}, absent } = ruleOf(field);
  if (options !== undefined || !mayBeAbsent(field)) return undefined;
  const [first, ...others] = new Set(Object.values(defaults));
  return absent ?? (others.length === 0 ? String(first) : 'the default');
}

function mayBeAbsent(field: PlanField): boolean {
  return ruleOf(field).isRequired !== true;
}

/** The fields of a plan, in the order of the table. */
export function fieldsOf(plan: PlanName): PlanField[] {
  return FIELD_NAMES.filter((field) => mayBeAbsent(field) || ruleOf(field).defaults?.[plan]);
}

/** Every stored name: `<plan>.<field>`. */
export const STORED_FIELDS: readonly string[] = PLAN_NAMES.flatMap((plan) =>
  fieldsOf(plan).map((field) => `${plan}.${field}`),
);

/** The stored value of a name, or else its default. */
export function storedValue(stored: StoredPlans, name: string): string | undefined {
  if (stored[name] !== undefined || !STORED_FIELDS.includes(name)) return stored[name];
  return firstOption(fieldIn(name)) ?? defaultOf(name)?.toString();
}

/** The default of a number that may be absent. */
const defaultOf = (name: string): number | undefined =>
  mayBeAbsent(fieldIn(name)) ? ruleOf(fieldIn(name)).defaults?.[planIn(name)] : undefined;

/** Whether a stored value is valid. A missing value is valid for a name that may be absent. */
export const isUsable = (name: string, text: string | undefined): boolean =>
  STORED_FIELDS.includes(name) &&
  (text === undefined ? mayBeAbsent(fieldIn(name)) : parseField(fieldIn(name), text) !== undefined);

/**
 * A field of an earlier rule, which banned a key for `ban_after` early requests within this many seconds. Where this
 * field is stored, `ban_after` was set for that rule and is ignored.
 */
const FORMER_FIELD = 'ban_within_seconds';

export const isFormer = (name: string): boolean => PLAN_NAMES.some((plan) => name === `${plan}.${FORMER_FIELD}`);

/** Whether a stored `ban_after` was set for the earlier rule. */
export const isOfFormerRule = (stored: Readonly<Record<string, unknown>>, name: string): boolean =>
  fieldIn(name) === 'ban_after' && stored[`${planIn(name)}.${FORMER_FIELD}`] !== undefined;

/**
 * The stored form of a plan's changes. Setting or removing `ban_after` selects the present rule, so it also removes the
 * field of the earlier one.
 */
export function storedChanges(
  plan: PlanName,
  values: Readonly<Partial<Record<PlanField, string | undefined>>>,
): StoredPlans {
  const changes = Object.fromEntries(Object.entries(values).map(([field, text]) => [`${plan}.${field}`, text]));
  return 'ban_after' in values ? { ...changes, [`${plan}.${FORMER_FIELD}`]: undefined } : changes;
}

/** An unusable value, and the value that stays in force. */
export interface RejectedValue {
  readonly field: string;
  readonly value: string | undefined;
  readonly kept: number | string | undefined;
}

/** Which value is in force in place of a rejected one. */
export const inForceInWords = (kept: RejectedValue['kept']): string =>
  kept === undefined ? 'no value is in force' : `${kept} stays in force`;

/** Reads a stored table. Reports invalid and missing values, for which the last valid ones stay in force. */
export function readPlans(stored: StoredPlans, last: PlanTable): { table: PlanTable; rejected: RejectedValue[] } {
  const rejected: RejectedValue[] = [];
  const isGone = Object.keys(stored).length === 0;

  function readField(plan: PlanName, field: PlanField): number | string | undefined {
    const name = `${plan}.${field}`;
    if (isOfFormerRule(stored, name)) return undefined;
    const text = stored[name];
    // An empty table is an accident, so the last values stay. A single field may be removed on purpose.
    if (text === undefined && mayBeAbsent(field)) return isGone ? last[plan][field] : defaultOf(name);
    const value = parseField(field, text ?? '');
    if (value === undefined) rejected.push({ field: name, value: text, kept: valueIn(last[plan], field) });
    return value ?? last[plan][field];
  }

  return { table: tableOf(readField), rejected: [...rejected, ...unknownFields(stored)] };
}

/** Without this report, a misspelt field would be ignored silently. */
function unknownFields(stored: StoredPlans): RejectedValue[] {
  const unknown = Object.entries(stored).filter(
    ([name, value]) => value !== undefined && !STORED_FIELDS.includes(name),
  );
  return unknown.map(([name, value]) => ({ field: name, value, kept: undefined }));
}

const KNOWN: ReadonlySet<string> = new Set([...STORED_FIELDS, ...PLAN_NAMES.map((plan) => `${plan}.${FORMER_FIELD}`)]);
const MOST_UNKNOWN = 1_000;

/**
 * A table as read, with at most 1,000 of the fields that no plan has: each is logged, and sent to every worker. They are
 * sorted, because Redis returns the fields of a large hash in a different order after each change.
 */
export function withFewUnknown(stored: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const names = Object.keys(stored);
  const known = names.filter((name) => KNOWN.has(name));
  if (known.length === names.length) return stored;
  const few = names
    .filter((name) => !KNOWN.has(name))
    .sort()
    .slice(0, MOST_UNKNOWN);
  return Object.fromEntries([...known, ...few].map((name) => [name, stored[name] ?? '']));
}

/** The table in its stored form. */
export function storedPlans(table: PlanTable): StoredPlans {
  const entries = PLAN_NAMES.flatMap((plan) =>
    Object.entries(table[plan]).map(([field, value]) => [`${plan}.${field}`, String(value)]),
  );
  return Object.fromEntries(entries);
}

/** The table in the form that decide.lua reads, with defaults: `\nfree minute=60 day=1000 …\npro …`. */
export const planText = (table: PlanTable): string =>
  PLAN_NAMES.map((plan) => {
    const fields = FIELD_NAMES.map((field) => [field, table[plan][field] ?? defaultOf(`${plan}.${field}`)]).filter(
      isSet,
    );
    return `\n${plan} ${fields.map(([field, value]) => `${field}=${value}`).join(' ')}`;
  }).join('');

const fieldIn = (name: string): PlanField => name.slice(name.indexOf('.') + 1) as PlanField;
const planIn = (name: string): PlanName => name.slice(0, name.indexOf('.')) as PlanName;

function isSet(entry: readonly unknown[]): boolean {
  return entry[1] !== undefined;
}
