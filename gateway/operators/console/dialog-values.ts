import type { FieldSpec } from './parts/field.ts';

/** Values or messages of a dialog, by the names of its fields. */
export type Values = Readonly<Record<string, string | undefined>>;

/** Errors of several fields, found before anything is sent. */
export class FieldFaults extends Error {
  readonly faults: Values;

  constructor(faults: Values) {
    super('Some fields are not valid.');
    this.faults = faults;
  }
}

/** Reads a form by the names of its fields. Empty fields are undefined; boxes of one name are joined with commas. */
export function valuesOf(form: HTMLFormElement): Values {
  const data = new FormData(form);
  const values: Record<string, string | undefined> = {};
  for (const name of new Set(data.keys())) {
    const text = data
      .getAll(name)
      .map((one) => String(one).trim())
      .join(',');
    values[name] = text === '' ? undefined : text;
  }
  return values;
}

interface SplitFaults {
  readonly faults: Values;
  readonly rest: string;
}

/** Splits the message about an invalid body by field. `rest` is the part that concerns none of them. */
export function faultsOf(thrown: Error, fields: readonly Pick<FieldSpec, 'name' | 'label'>[]): SplitFaults {
  if (thrown instanceof FieldFaults) return { faults: thrown.faults, rest: '' };
  const parts = thrown.message
    .replace(/^The body is not valid: /, '')
    .replace(/\.$/, '')
    .split('; ');
  const faults: Record<string, string> = {};
  const rest: string[] = [];
  for (const part of parts) {
    const field = fields.find(({ name }) => part.startsWith(`${name} `));
    if (field === undefined) rest.push(part);
    else faults[field.name] = `${field.label} ${part.slice(field.name.length + 1)}.`;
  }
  return { faults, rest: rest.length === 0 ? '' : `${rest.join('; ').replace(/[.?!]$/, '')}.` };
}
