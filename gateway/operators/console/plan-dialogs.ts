import type { PlanChangeView, PlanTable } from '../api/answers.ts';
import { ApiError, callApi, get } from './api.ts';
import { ask } from './dialog.ts';
import { FieldFaults, type Values } from './dialog-values.ts';
import { html } from './html.ts';
import type { FieldSpec } from './parts/field.ts';
import { Differences, WhatIf } from './parts/plan-review.ts';
import {
  fieldsOf,
  type Plan,
  type PlanField,
  type PlanName,
  rangeOf,
  ruleOf,
  typedValue,
  valueIn,
  whenAbsent,
} from './plan-fields.ts';
import { tell } from './toast.ts';
import { askedOf, who } from './who.ts';
import { fieldInWords, number, planInWords, tableFieldInWords, upperFirst, valueInWords } from './words.ts';

/** The dialogs that change plans, in three steps: type, review, apply. */

type Changed = () => Promise<void>;

interface Seen {
  readonly values: Plan;
  readonly etag: string | undefined;
}

async function readPlan(plan: PlanName): Promise<Seen> {
  const { body, etag } = await get<PlanTable>('/plans');
  return { values: body[plan], etag: etag ?? undefined };
}

const textOf = (values: Plan, field: PlanField): string => String(valueIn(values, field) ?? '');

/** Asks for new values of a plan, with the current ones filled in. */
export async function askForPlan(plan: PlanName, changed: Changed): Promise<void> {
  try {
    form(plan, await readPlan(plan), {}, changed);
  } catch (fault) {
    tell((fault as Error).message);
  }
}

/** @param typed the earlier input, if the review led back here */
function form(plan: PlanName, seen: Seen, typed: Values, changed: Changed): void {
  const fields = fieldsOf(plan).map((field): FieldSpec => {
    const { label, options, hint: ofChoice } = ruleOf(field);
    const value = typed[field] ?? textOf(seen.values, field);
    const common = { name: field, label, value };
    if (options !== undefined)
      return { ...common, options: options.map((one) => [one, upperFirst(one)]), hint: ofChoice };
    const absent = whenAbsent(field);
    const hint = `Now ${valueInWords(textOf(seen.values, field))}.${absent === undefined ? '' : ` Empty: ${absent}.`}`;
    return { ...common, type: 'number', maxlength: 20, hint };
  });
  ask({
    title: `Change ${planInWords(plan)}`,
    fields,
    confirm: 'Review',
    async act(values) {
      checkValues(plan, values);
      const made = differencesIn(plan, seen, values);
      if (made.length === 0) throw new Error('You have not changed anything.');
      // The current dialog closes first.
      setTimeout(() => review({ plan, seen, values, changed }));
    },
  });
}

/** @throws {FieldFaults} */
function checkValues(plan: PlanName, values: Values): void {
  const faults = fieldsOf(plan).filter((field) => typedValue(field, values[field] ?? '') === undefined);
  if (faults.length > 0)
    throw new FieldFaults(Object.fromEntries(faults.map((field) => [field, `${upperFirst(rangeOf(field, number))}.`])));
}

interface MadeChange {
  readonly name: PlanField;
  /** The field in words. */
  readonly field: string;
  readonly from: string;
  readonly to: string;
}

/** Compares the typed values with those in force. */
const differencesIn = (plan: PlanName, { values: now }: Seen, typed: Values): MadeChange[] =>
  fieldsOf(plan)
    .map((name) => ({ name, field: fieldInWords(name), from: textOf(now, name), to: typed[name] ?? '' }))
    .filter(({ from, to }) => from !== to);

interface Review {
  readonly plan: PlanName;
  readonly seen: Seen;
  readonly values: Values;
  readonly changed: Changed;
  /** Shown at the top if somebody else made a change first. */
  readonly note?: string;
  readonly about?: Values;
}

/** Shows the difference and its effect on the last hour, and makes the change unless the table has changed. */
function review({ plan, seen, values, changed, note, about }: Review): void {
  const made = differencesIn(plan, seen, values);
  const limits = Object.fromEntries(
    made.filter(({ name }) => name === 'minute' || name === 'day').map(({ name, to }) => [name, typedValue(name, to)]),
  );
  const [author, reason] = who(about?.reason ?? '');
  ask({
    title: `Review the change of ${planInWords(plan)}`,
    content: html`
      ${note !== undefined && html`<p class="notice bad" role="alert">${note}</p>`}
      <${Differences} changes=${made} />
      <${WhatIf} plan=${plan} limits=${limits} />
    `,
    fields: [author, reason].filter((one) => one !== undefined),
    confirm: 'Apply',
    async act(asked) {
      const body = {
        ...Object.fromEntries(made.map(({ name, to }) => [name, typedValue(name, to)])),
        ...askedOf(asked),
      };
      try {
        await callApi('PATCH', `/plans/${plan}`, { body, ifMatch: seen.etag });
      } catch (fault) {
        if (!(fault instanceof ApiError && fault.code === 'conflict')) throw fault;
        const now = await readPlan(plan);
        setTimeout(() =>
          review({
            plan,
            seen: now,
            values: inForceUnless(made, now, values),
            changed,
            note: fault.message,
            about: asked,
          }),
        );
        return;
      }
      await changed();
      tell(
        `${planInWords(plan)} has been changed: ${made.map(({ field, from, to }) => `${field.toLowerCase()} ${valueInWords(from)} → ${valueInWords(to)}`).join(', ')}.`,
      );
    },
  });
}

/** After a conflict, keeps the values that were changed here, and updates all others. */
function inForceUnless(made: readonly MadeChange[], now: Seen, typed: Values): Values {
  const isMade = (field: string) => made.some(({ name }) => name === field);
  return Object.fromEntries(
    Object.keys(typed).map((field) => [field, isMade(field) ? typed[field] : textOf(now.values, field as PlanField)]),
  );
}

/** Rolls back the last change of the table. */
export function askForRollback({ id, changes }: PlanChangeView, changed: Changed): void {
  const back = changes.map(({ field, from, to }) => ({ field: tableFieldInWords(field), from: to, to: from }));
  ask({
    title: 'Roll back the last change',
    content: html`<${Differences} changes=${back} />`,
    fields: who(`rolls back ${id}`),
    confirm: 'Roll back',
    async act(values) {
      await callApi('POST', '/plans/rollback', { body: { id, ...askedOf(values) } });
      await changed();
      tell('The last change has been rolled back.');
    },
  });
}
