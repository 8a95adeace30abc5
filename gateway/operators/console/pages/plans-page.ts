import type { HistoryAnswer, PlanTable, TrafficAnswer } from '../../api/answers.ts';
import { get } from '../api.ts';
import { html } from '../html.ts';
import { ActionButton } from '../parts/action-button.ts';
import { AuditCard } from '../parts/audit-list.ts';
import { Card } from '../parts/pieces.ts';
import { PlanHistory } from '../parts/plan-history.ts';
import { inWords } from '../parts/table.ts';
import { askForPlan } from '../plan-dialogs.ts';
import {
  FIELD_NAMES,
  fieldsOf,
  PLAN_NAMES,
  type Plan,
  type PlanField,
  type PlanName,
  ruleOf,
  valueIn,
  whenAbsent,
} from '../plan-fields.ts';
import { usePolled } from '../polled.ts';
import { fieldInWords, number, planInWords, upperFirst } from '../words.ts';
import { rejectedInWords } from './health-page.ts';

const EVERY_MS = 2_000;

/** Shows the plans in force, and their history. */
export function PlansPage() {
  const plans = usePolled('plans', EVERY_MS, async () => {
    const { body, etag } = await get<PlanTable>('/plans');
    return { table: body, etag };
  });
  const history = usePolled(
    'history',
    EVERY_MS,
    async () => (await get<HistoryAnswer>('/plans/history?limit=20')).body,
  );
  const traffic = usePolled('state', EVERY_MS, async () => (await get<TrafficAnswer>('/traffic')).body);
  const changed = async () => void (await Promise.all([plans.refresh(), history.refresh(), traffic.refresh()]));
  const rejected = traffic.value?.planTable.rejected ?? [];
  return html`
    <h1>Plans</h1>
    <p class="note">Every gateway applies a change within a second. You see the difference before anything is changed.</p>
    ${rejected.map((one) => html`<p class="notice bad" role="status">${rejectedInWords(one)}</p>`)}
    <${Card} title="In force" id="plans-title">
      ${plans.value !== undefined && plans.fault !== undefined && html`<p class="stale" role="status">Not up to date: ${inWords(plans.fault)}</p>`}
      ${
        plans.value === undefined
          ? html`<p class="empty">${plans.fault === undefined ? 'Loading …' : inWords(plans.fault)}</p>`
          : html`<${Table} table=${plans.value.table} changed=${changed} />`
      }
    <//>
    <${PlanHistory} history=${history} changed=${changed} />
    <${AuditCard} filters=${{ action: 'plan.change' }} version=${plans.value?.etag} />
  `;
}

function Table({ table, changed }: { table: PlanTable; changed: () => Promise<void> }) {
  return html`
    <table class="plans" aria-label="In force">
      <thead>
        <tr>
          <th scope="col">Plan</th>
          ${FIELD_NAMES.map((field) => html`<th scope="col" class="figure">${fieldInWords(field)}</th>`)}
          <th scope="col">Action</th>
        </tr>
      </thead>
      <tbody>
        ${PLAN_NAMES.map(
          (plan) => html`
            <tr key=${plan}>
              <th scope="row"><span class="name">${planInWords(plan)}</span></th>
              ${FIELD_NAMES.map((field) => html`<td data-label=${fieldInWords(field)} class="figure"><div>${shownValue(plan, table[plan], field)}</div></td>`)}
              <td data-label="Action"><div>
                <${ActionButton} kind="small" onClick=${() => askForPlan(plan, changed)}>Change<span class="unseen"> ${planInWords(plan)}</span><//>
              </div></td>
            </tr>
          `,
        )}
      </tbody>
    </table>
  `;
}

function shownValue(plan: PlanName, values: Plan, field: PlanField) {
  const [value, usual] = [valueIn(values, field), ruleOf(field).options?.[0]];
  if (typeof value === 'number') return number(value);
  if (value !== undefined)
    return html`<span class=${`badge ${value === usual ? '' : 'warning'}`}>${upperFirst(value)}</span>`;
  return html`<span class="note">${fieldsOf(plan).includes(field) ? (whenAbsent(field) ?? '–') : 'set per key'}</span>`;
}
