import { readFile } from 'node:fs/promises';
import { text } from 'node:stream/consumers';
import { isMap, isScalar, parseDocument, stringify } from 'yaml';
import {
  FIELD_NAMES,
  fieldsOf,
  isPlanName,
  PLAN_NAMES,
  type Plan,
  type PlanField,
  type PlanName,
  type PlanTable,
  parseField,
  rangeOf,
  valueIn,
  whenAbsent,
} from '../../limiter/plans.ts';
import { mostBanAfter } from '../../limiter/refusals.ts';
import type { FieldChange } from '../../stores/audit.ts';
import type { PlanChangeView } from '../api/answers.ts';
import { type Column, colour, harmless, table, timeText } from './text.ts';

/**
 * The plan table as printed text, and as a file: `<plan>: { <field>: <value> }`, in YAML or JSON. Fields that are not
 * in the file stay unchanged.
 */

export type PlanFile = { readonly [plan in PlanName]?: GivenPlan };

/** Values of a plan as the operator typed them. null removes an optional number. */
export type GivenPlan = { readonly [F in PlanField]?: Plan[F] | null };

export const withGiven = (plan: Plan, given: GivenPlan = {}): Plan =>
  Object.fromEntries(Object.entries({ ...plan, ...given }).filter(([, value]) => value !== null));

/** Far more than all fields of all plans need. */
const MAX_CHARACTERS = 65_536;

/** Returns the whole table, including fields with their default values. */
export const inFull = (table: PlanTable): PlanFile =>
  Object.fromEntries(
    PLAN_NAMES.map((plan) => [
      plan,
      Object.fromEntries(fieldsOf(plan).map((field) => [field, valueIn(table[plan], field) ?? null])),
    ]),
  );

export const toYaml = (table: PlanTable): string =>
  `# The gateway's plans. Compare with: ctl plans diff -f <file>. Apply with: ctl plans apply -f <file>.\n${stringify(inFull(table))}`;

/** Reads a file, or standard input for `-`. @throws {Error} if it cannot be read or does not contain plans */
export const readPlanFile = async (path: string): Promise<PlanFile> =>
  parsePlanFile(await (path === '-' ? text(process.stdin) : readFile(path, 'utf8')));

/**
 * Reads YAML. JSON is valid YAML too (YAML 1.2 §1.3).
 * @throws {Error} if it is not a valid plan table. The message lists all faults, one per line
 */
export function parsePlanFile(content: string): PlanFile {
  if (content.length > MAX_CHARACTERS) throw new Error(`It has more than ${MAX_CHARACTERS} characters.`);
  const { contents, errors, warnings } = parseDocument(content);
  const faults = [...errors, ...warnings].map(({ message }) => message.split('\n')[0]?.replace(/:$/, '.') ?? '');
  if (faults.length > 0) throw new Error(faults.join('\n'));
  if (!isMap(contents) || contents.items.length === 0)
    throw new Error('It contains no plans. Example: `free: { minute: 60 }`.');
  const plans: [string, GivenPlan][] = [];
  for (const { key, value } of contents.items) {
    const plan = nameOf(key);
    if (!isPlanName(plan)) faults.push(`${plan} is not a plan; the plans are ${PLAN_NAMES.join(', ')}.`);
    else if (!isMap(value) || value.items.length === 0) faults.push(`${plan} has no fields.`);
    else {
      const fields = value.items.map((item) => ({ field: nameOf(item.key), node: item.value }));
      const values = fields.map(({ field, node }) => [field, givenValue(plan, field, node, faults)]);
      plans.push([plan, Object.fromEntries(values)]);
    }
  }
  if (faults.length > 0) throw new Error(faults.join('\n'));
  return Object.fromEntries(plans);
}

const nameOf = (key: unknown): string => String(isScalar(key) ? key.value : key);

function givenValue(
  plan: PlanName,
  field: string,
  node: unknown,
  faults: string[],
): number | string | null | undefined {
  const known: readonly string[] = fieldsOf(plan);
  if (!known.includes(field)) {
    faults.push(`${plan} has no field ${field}; its fields are ${known.join(', ')}.`);
    return undefined;
  }
  const given = isScalar(node) ? node.value : node;
  const absent = whenAbsent(field as PlanField);
  if (given === null && absent !== undefined) return null;
  const value = parseField(field as PlanField, String(given));
  // A number in quotes is a string, as in a request to the admin API.
  if (value !== undefined && typeof value === typeof given) return value;
  const orAbsent = absent === undefined ? '' : `, or null for ${absent}`;
  faults.push(`${plan}.${field} must be ${rangeOf(field as PlanField)}${orAbsent}.`);
  return undefined;
}

/**
 * Lists the changes that would make the table the same as the file.
 * @param table the plans in force
 * @param rejected the stored values that are invalid and therefore not in force
 */
export function driftOf(
  table: PlanTable,
  file: PlanFile,
  rejected: readonly { readonly field: string; readonly value?: string | undefined }[] = [],
): (FieldChange & { plan: PlanName; name: PlanField })[] {
  const stored = (field: string, inForce: ReturnType<typeof valueIn>) => {
    const bad = rejected.find((one) => one.field === field);
    return bad === undefined ? inForce?.toString() : bad.value;
  };
  const named = PLAN_NAMES.flatMap((plan) =>
    FIELD_NAMES.filter((name) => file[plan]?.[name] !== undefined).map((name) => ({ plan, name })),
  );
  return named
    .map(({ plan, name }) => ({
      plan,
      name,
      field: `${plan}.${name}`,
      from: stored(`${plan}.${name}`, valueIn(table[plan], name)),
      to: file[plan]?.[name]?.toString(),
    }))
    .filter(({ from, to }) => from !== to);
}

/** The plans and fields that are not in the file. */
export const leftOut = (file: PlanFile): string[] =>
  PLAN_NAMES.flatMap((plan) =>
    file[plan] === undefined
      ? [plan]
      : fieldsOf(plan)
          .filter((field) => file[plan]?.[field] === undefined)
          .map((field) => `${plan}.${field}`),
  );

export function describePlans(shown: Readonly<Record<string, Plan>>): string {
  const columns = FIELD_NAMES.map((field): Column<[string, Plan]> => {
    return [field, ([, plan]) => valueIn(plan, field) ?? whenAbsent(field)];
  });
  return table(Object.entries(shown), [['plan', ([name]) => name], ...columns]);
}

export function describeChanges(changes: readonly FieldChange[], stream: NodeJS.WriteStream): string {
  const width = Math.max(...changes.map(({ field }) => field.length));
  const lines = changes.map(({ field, from = 'none', to = 'none' }) => {
    const [before, after] = [colour('red', harmless(from), stream), colour('green', harmless(to), stream)];
    return `${field.padEnd(width)}  ${before} -> ${after}`;
  });
  return lines.join('\n');
}

export function describeHistory(history: readonly PlanChangeView[]): string {
  if (history.length === 0) return 'No plan has been changed yet.';
  const inWords = ({ field, from = 'none', to = 'none' }: FieldChange) => `${field} ${from} -> ${to}`;
  const changes: Column<PlanChangeView> = ['changes', (one) => one.changes.map(inWords).join(', ')];
  return table(history, [['at', ({ at }) => timeText(at)], 'author', 'action', changes, 'reason']);
}

/** Warns about values that are valid but rarely intended. */
export function warningsOf({ minute, day, ban_after, ban_grace_seconds, mode }: Plan): string[] {
  const warnings: string[] = [];
  if (mode === 'shadow')
    warnings.push('in shadow mode the plan refuses nothing; requests over its limits are counted and logged.');
  if (minute !== undefined && day !== undefined && day < minute)
    warnings.push(`the day limit of ${day} requests is lower than the minute limit of ${minute}.`);
  if (ban_after !== undefined && minute !== undefined && ban_after > mostBanAfter(minute))
    warnings.push('ban_after is over eight times the minute limit: one burst per minute can get a key banned.');
  if (ban_grace_seconds === 0)
    warnings.push(
      'without a grace period, a key whose clients respect Retry-After is banned if enough of their requests are refused at the same time.',
    );
  return warnings;
}
