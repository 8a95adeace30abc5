import { useEffect, useState } from 'preact/hooks';
import {
  FIELD_NAMES,
  fieldsOf,
  type Plan,
  type PlanField,
  type PlanName,
  parseField,
  rangeOf,
  ruleOf,
  valueIn,
  whenAbsent,
} from '../../limiter/plans.ts';
import type { HistoryAnswer, PlanChangeView, PlanTable, TrafficAnswer, TrialAnswer } from '../api/answers.ts';
import { readTrial, type Trial } from '../clients.ts';
import { ApiError, callApi, type Polled, usePolled } from './api.ts';
import { AuditCard, Changes, viaInWords } from './audit-log.ts';
import { ask, FieldFaults, type FieldSpec, type Values, who } from './dialog.ts';
import { rejectedInWords } from './health.ts';
import { ActionButton, BanNote, type Column, html, notify, TableCard, When } from './parts.ts';
import {
  counted,
  fieldInWords,
  number,
  percent,
  planInWords,
  tableFieldInWords,
  upperFirst,
  valueInWords,
} from './words.ts';

/** The plans in force, their history, and the dialogs that change them in three steps: type, review, apply. */

/** Shows the plans in force, and their history. */
export function PlansPage() {
  const plans = usePolled<PlanTable>('/plans', 2_000);
  const history = usePolled<HistoryAnswer>('/plans/history?limit=20', 2_000);
  const traffic = usePolled<TrafficAnswer>('/traffic', 2_000);
  const rejected = traffic.value?.planTable.rejected ?? [];
  return html`
    <h1>Plans</h1>
    <p class="note">Every gateway applies a change within a second. You review the difference before anything is changed.</p>
    ${rejected.map((one) => html`<p class="notice bad" role="status">${rejectedInWords(one)}</p>`)}
    <${TableCard} title="In force" columns=${COLUMNS} rows=${plans.value && Object.entries(plans.value)} fault=${plans.fault}
      idOf=${([plan]: NamedPlan) => plan} />
    <${PlanHistory} history=${history} />
    <${AuditCard} asked=${{ action: 'plan.change' }} />
  `;
}

type NamedPlan = readonly [name: PlanName, values: Plan];

const COLUMNS: readonly Column<NamedPlan>[] = [
  { title: 'Plan', show: ([plan]) => html`<strong>${planInWords(plan)}</strong>` },
  ...FIELD_NAMES.map((field) => ({
    title: fieldInWords(field),
    isFigure: true,
    show: ([plan, values]: NamedPlan) => shownValue(plan, values, field),
  })),
  {
    title: 'Action',
    show: ([plan]) =>
      html`<${ActionButton} kind="small" of=${planInWords(plan)} onClick=${() => askForPlan(plan)}>Change<//>`,
  },
];

function shownValue(plan: PlanName, values: Plan, field: PlanField) {
  const [value, usual] = [valueIn(values, field), ruleOf(field).options?.[0]];
  if (typeof value === 'number') return number(value);
  if (value !== undefined)
    return html`<span class=${`badge ${value === usual ? '' : 'warning'}`}>${upperFirst(value)}</span>`;
  return html`<span class="note">${fieldsOf(plan).includes(field) ? (whenAbsent(field) ?? '–') : 'set per key'}</span>`;
}

const ACTIONS: Readonly<Record<string, string>> = {
  rollback: 'Rolled back',
  'by hand': viaInWords('by hand'),
  restore: 'Restored',
};

/** Lists the last changes to plans. The newest that is not a restoration can be rolled back. */
function PlanHistory({ history }: { history: Polled<HistoryAnswer> }) {
  const rows = history.value?.history;
  const newest = rows?.find(({ action }) => action !== 'restore');
  const columns: readonly Column<PlanChangeView>[] = [
    { title: 'When', show: ({ at }) => html`<${When} at=${at} />` },
    { title: 'Who', show: ({ author }) => html`<span class="wordy">${author}</span>` },
    { title: 'What', show: What },
    { title: 'Why', show: ({ reason }) => html`<span class="wordy">${reason || '–'}</span>` },
    {
      title: 'Action',
      show: (change) =>
        change === newest && html`<${ActionButton} kind="small" onClick=${() => askForRollback(change)}>Roll back<//>`,
    },
  ];
  return html`<${TableCard} title="Changes" columns=${columns} rows=${rows} fault=${history.fault} empty="No plan has been changed yet." />`;
}

const What = ({ action, changes }: PlanChangeView) => html`
  ${ACTIONS[action] !== undefined && html`<span class="note">${ACTIONS[action]}</span>`}
  <${Changes} changes=${changes} />
`;

async function readPlan(plan: PlanName) {
  const { body, etag } = await callApi<PlanTable>('GET', '/plans');
  return { values: body[plan], etag };
}

type Seen = Awaited<ReturnType<typeof readPlan>>;

const textOf = (values: Plan, field: PlanField): string => String(valueIn(values, field) ?? '');

/** Asks for new values of a plan, with the current ones filled in. */
async function askForPlan(plan: PlanName): Promise<void> {
  try {
    form(plan, await readPlan(plan));
  } catch (fault) {
    notify((fault as Error).message);
  }
}

function form(plan: PlanName, seen: Seen): void {
  const fields = fieldsOf(plan).map((field): FieldSpec => {
    const { label, options, hint: ofChoice } = ruleOf(field);
    const value = textOf(seen.values, field);
    const common = { name: field, label, value };
    if (options !== undefined)
      return { ...common, options: options.map((one) => [one, upperFirst(one)]), hint: ofChoice };
    const absent = whenAbsent(field);
    const forAbsent = absent === undefined ? '' : ` Leave empty for ${absent}.`;
    const hint = value === '' ? `Empty means ${absent}.` : `Now ${valueInWords(value)}.${forAbsent}`;
    return { ...common, type: 'number', hint };
  });
  ask({
    title: `Change ${planInWords(plan)}`,
    fields,
    confirm: 'Review',
    async act(values) {
      checkValues(plan, values);
      const made = differencesIn(plan, seen, values);
      if (made.length === 0) throw new Error('You have not changed anything.');
      review({ plan, seen, typed: Object.fromEntries(made.map(({ name, to }) => [name, to])) });
    },
  });
}

/** @throws {FieldFaults} */
function checkValues(plan: PlanName, values: Values): void {
  const faults = fieldsOf(plan).filter((field) => typedValue(field, values[field] ?? '') === undefined);
  if (faults.length > 0)
    throw new FieldFaults(Object.fromEntries(faults.map((field) => [field, `${upperFirst(rangeOf(field, number))}.`])));
}

/** Compares the typed values with those in force. `field` is in words. */
const differencesIn = (plan: PlanName, { values: now }: Seen, typed: Values) =>
  fieldsOf(plan)
    .map((name) => ({ name, field: fieldInWords(name), from: textOf(now, name), to: typed[name] ?? '' }))
    .filter(({ name, from, to }) => name in typed && from !== to);

interface Review {
  readonly plan: PlanName;
  readonly seen: Seen;
  /** Only the values that the operator changed. After a conflict, all others come from the new table. */
  readonly typed: Values;
  /** Shown at the top if somebody else made a change first. */
  readonly note?: string;
  readonly reason?: string | undefined;
}

/** Shows the difference and its effect on the last hour, and makes the change unless the table has changed. */
function review({ plan, seen, typed, note, reason: typedReason }: Review): void {
  const made = differencesIn(plan, seen, typed);
  const limits = Object.fromEntries(
    made.filter(({ name }) => name === 'minute' || name === 'day').map(({ name, to }) => [name, typedValue(name, to)]),
  );
  ask({
    title: `Review the change to ${planInWords(plan)}`,
    content: html`
      ${note !== undefined && html`<p class="notice bad" role="alert">${note}</p>`}
      <${Differences} changes=${made} />
      <${WhatIf} plan=${plan} limits=${limits} />
    `,
    fields: who(typedReason),
    confirm: 'Apply',
    isContinued: true,
    async act({ reason }) {
      const given = Object.fromEntries(made.map(({ name, to }) => [name, typedValue(name, to)]));
      try {
        await callApi('PATCH', `/plans/${plan}`, { body: given, ifMatch: seen.etag, reason });
      } catch (fault) {
        if (!(fault instanceof ApiError && fault.code === 'conflict')) throw fault;
        return review({ plan, seen: await readPlan(plan), typed, note: fault.message, reason });
      }
      notify(
        `${planInWords(plan)} has been changed: ${made.map(({ name, field, from, to }) => `${field.toLowerCase()} ${valueInWords(from, name)} → ${valueInWords(to, name)}`).join(', ')}.`,
      );
    },
  });
}

/** Rolls back the last change to the table. */
function askForRollback({ id, changes }: PlanChangeView): void {
  const back = changes.map(({ field: name, from, to }) => ({
    name,
    field: tableFieldInWords(name),
    from: to,
    to: from,
  }));
  ask({
    title: 'Roll back the last change',
    content: html`<${Differences} changes=${back} />`,
    fields: who(`rolls back ${id}`),
    confirm: 'Roll back',
    act: ({ reason }) => callApi('POST', '/plans/rollback', { body: { id }, reason }),
    done: 'The last change has been rolled back.',
  });
}

type Difference = PlanChangeView['changes'][number] & { readonly name: string };

/** Shows each field on one line, with its current and its new value. */
const Differences = ({ changes }: { changes: readonly Difference[] }) =>
  changes.length === 0
    ? html`<p>There is nothing to change: these values are already in force.</p>`
    : html`<ul class="differences">
        ${changes.map(({ name, field, from, to }) => html`<li>${field}: <del>${valueInWords(from, name)}</del> → <ins>${valueInWords(to, name)}</ins></li>`)}
      </ul>`;

/** Each page of a trial covers 100 keys. */
const MOST_PAGES = 50;
const SHOWN = 5;

/** Shows what new limits would have refused, based on the counts of the last hour. */
function WhatIf({ plan, limits }: { plan: PlanName; limits: Readonly<Record<string, unknown>> }) {
  const [trial, setTrial] = useState<Trial | Error | undefined>();
  const isNone = Object.keys(limits).length === 0;
  useEffect(() => {
    if (isNone) return;
    const ask = async (path: string) =>
      (await callApi<TrialAnswer>('POST', path, { body: limits, isTrial: true })).body;
    const attempt = () => {
      setTrial(undefined);
      readTrial(ask, plan, MOST_PAGES).then(setTrial, setTrial);
    };
    attempt();
    // A trial that was refused because the token was revoked is repeated after the next login.
    addEventListener('token-kept', attempt);
    return () => removeEventListener('token-kept', attempt);
  }, []);
  if (isNone) return undefined;
  return html`<div class="what-if" role="status"><h3>In the last hour</h3>${trialInWords(trial)}</div>`;
}

const LEAST = html`<p class="note">This is a lower bound: requests are counted by minute, so bursts within a minute are missed. Shadow mode finds the exact number.</p>`;

function trialInWords(trial: Trial | Error | undefined) {
  if (trial === undefined) return html`<p>Trying the limits on the requests of the last hour …</p>`;
  if (trial instanceof Error) return html`<p>These limits could not be tried: ${trial.message}</p>`;
  const { keys, requests, affected, isWhole } = trial;
  const refused = affected.reduce((sum, { wouldRefuse }) => sum + wouldRefuse, 0);
  const scope = isWhole ? '' : ` Only the first ${number(MOST_PAGES * 100)} keys were checked.`;
  if (requests === 0) return html`<p>No key of this plan sent a request.${scope}</p>`;
  if (refused === 0)
    return html`
      <p>As far as the counts show, these limits would have refused 0 of ${counted(requests, 'request')} from ${counted(keys, 'key')}.${scope}</p>
      ${LEAST}
    `;
  return html`
    <p>
      These limits would have refused at least <b>${number(refused)}</b>${` of ${counted(requests, 'request')} (${percent(refused, requests)}), from `}
      at least <b>${number(affected.length)}</b>${` of ${counted(keys, 'key')}.${scope}`}
    </p>
    <ul class="plain">
      ${affected
        .slice(0, SHOWN)
        .map(
          ({ id, name, requests, refused, wouldRefuse, ban }) =>
            html`<li key=${id} class="wordy"><b>${name}</b>: ${number(wouldRefuse)} of ${number(requests)}, instead of ${number(refused)} <${BanNote} ban=${ban} /></li>`,
        )}
      ${affected.length > SHOWN && html`<li class="note">and ${counted(affected.length - SHOWN, 'more key', 'more keys')}</li>`}
    </ul>
    ${LEAST}
  `;
}

/** Reads a typed value by the gateway's own rules. null stands for an absent number, undefined for an invalid value. */
const typedValue = (field: PlanField, text: string): number | string | null | undefined =>
  text === '' && whenAbsent(field) !== undefined ? null : parseField(field, text);
