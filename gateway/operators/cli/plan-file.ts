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
import type { FieldChange } from '../../stores/audit.ts';

/** The plan table as a file for git: `<plan>: { <field>: <value> }`, in YAML or JSON. What it leaves out is left alone. */

export type PlanFile = { readonly [plan in PlanName]?: GivenPlan };

/** Values of a plan as somebody gives them. Null stands for a number that is absent. */
export type GivenPlan = { readonly [F in PlanField]?: Plan[F] | null };

/** A plan once these values are in force. */
export const withGiven = (plan: Plan, given: GivenPlan = {}): Plan =>
  Object.fromEntries(Object.entries({ ...plan, ...given }).filter(([, value]) => value !== null));

/** A file that is no plan table: all faults, one per line. */
export class BadPlanFile extends Error {}

/** Far more than all fields of all plans. */
const MAX_CHARACTERS = 65_536;

/** The whole table, with the choices that nobody made. */
export const inFull = (table: PlanTable): PlanFile =>
  Object.fromEntries(
    PLAN_NAMES.map((plan) => [
      plan,
      Object.fromEntries(fieldsOf(plan).map((field) => [field, valueIn(table[plan], field) ?? null])),
    ]),
  );

export const toYaml = (table: PlanTable): string =>
  `# The plans of the gateway. Compare with: ctl plans diff -f <file>. Put in force with: ctl plans apply -f <file>.\n${stringify(inFull(table))}`;

/**
 * Reads a file, or standard input for `-`.
 * @throws {BadPlanFile} if it cannot be read, or does not hold plans
 */
export async function readPlanFile(path: string): Promise<PlanFile> {
  const content = await (path === '-' ? text(process.stdin) : readFile(path, 'utf8')).catch((fault: Error) => {
    throw new BadPlanFile(fault.message);
  });
  return parsePlanFile(content);
}

/** JSON is YAML too (YAML 1.2 §1.3). @throws {BadPlanFile} */
export function parsePlanFile(content: string): PlanFile {
  if (content.length > MAX_CHARACTERS) throw new BadPlanFile(`It has more than ${MAX_CHARACTERS} characters.`);
  const { contents, errors, warnings } = parseDocument(content);
  const faults = [...errors, ...warnings].map(({ message }) => message.split('\n')[0]?.replace(/:$/, '.') ?? '');
  if (faults.length > 0) throw new BadPlanFile(faults.join('\n'));
  if (!isMap(contents) || contents.items.length === 0)
    throw new BadPlanFile('It has no plans, as in `free: { minute: 60 }`.');
  const plans: [string, GivenPlan][] = [];
  for (const { key, value } of contents.items) {
    const plan = nameOf(key);
    if (!isPlanName(plan)) faults.push(`${plan} is no plan; they are ${PLAN_NAMES.join(', ')}.`);
    else if (!isMap(value) || value.items.length === 0) faults.push(`${plan} has no fields.`);
    else
      plans.push([
        plan,
        Object.fromEntries(
          value.items.map((item) => [nameOf(item.key), givenValue(plan, nameOf(item.key), item.value, faults)]),
        ),
      ]);
  }
  if (faults.length > 0) throw new BadPlanFile(faults.join('\n'));
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
    faults.push(`${plan} has no ${field}; it has ${known.join(', ')}.`);
    return undefined;
  }
  const given = isScalar(node) ? node.value : node;
  const absent = whenAbsent(field as PlanField);
  if (given === null && absent !== undefined) return null;
  const value = parseField(field as PlanField, String(given));
  // A number in quotes is a text, as in a request to the admin API.
  if (value !== undefined && typeof value === typeof given) return value;
  const orAbsent = absent === undefined ? '' : `, or null for ${absent}`;
  faults.push(`${plan}.${field} must be ${rangeOf(field as PlanField)}${orAbsent}.`);
  return undefined;
}

/** What would have to change for the table to be as the file says. */
export function driftOf(table: PlanTable, file: PlanFile): (FieldChange & { plan: PlanName; name: PlanField })[] {
  const named = PLAN_NAMES.flatMap((plan) =>
    FIELD_NAMES.filter((name) => file[plan]?.[name] !== undefined).map((name) => ({ plan, name })),
  );
  return named
    .map(({ plan, name }) => ({
      plan,
      name,
      field: `${plan}.${name}`,
      from: valueIn(table[plan], name)?.toString(),
      to: file[plan]?.[name]?.toString(),
    }))
    .filter(({ from, to }) => from !== to);
}

/** The stored names of which the file says nothing. */
export const leftOut = (file: PlanFile): string[] =>
  PLAN_NAMES.flatMap((plan) =>
    file[plan] === undefined
      ? [plan]
      : fieldsOf(plan)
          .filter((field) => file[plan]?.[field] === undefined)
          .map((field) => `${plan}.${field}`),
  );
