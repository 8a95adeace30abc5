import type { DoctorAnswer, SeenFinding, TrafficAnswer } from '../../api/answers.ts';
import { get } from '../api.ts';
import { html } from '../html.ts';
import { CoresCard, RedisFacts, WorkersCard } from '../parts/health-dependencies.ts';
import { Card, When } from '../parts/pieces.ts';
import { type Column, inWords, Table } from '../parts/table.ts';
import { usePolled } from '../polled.ts';
import { number, tableFieldInWords } from '../words.ts';

const STATE_EVERY_MS = 3_000;
const CHECKS_EVERY_MS = 10_000;

const STATUSES = { good: 'Good', warning: 'Warning', fault: 'Fault', unknown: 'Unknown' } as const;

const COLUMNS: readonly Column<SeenFinding>[] = [
  { title: 'What', show: ({ about }) => html`<span class="wordy">${about}</span>` },
  { title: 'State', show: ({ status }) => html`<span class=${`badge ${status}`}>${STATUSES[status]}</span>` },
  { title: 'Found', show: ({ found }) => html`<span class="wordy">${found}</span>` },
  {
    title: 'Since',
    show: ({ since }) => (since === undefined ? html`<span class="note">–</span>` : html`<${When} at=${since} />`),
  },
  { title: 'What to do', show: ({ advice }) => html`<span class="wordy">${advice ?? '–'}</span>` },
];

/** Shows the state of everything that the gateway depends on. */
export function HealthPage() {
  const state = usePolled('state', STATE_EVERY_MS, async () => (await get<TrafficAnswer>('/traffic')).body);
  const checks = usePolled('doctor', CHECKS_EVERY_MS, async () => (await get<DoctorAnswer>('/doctor')).body);
  const findings = checks.value?.findings.toSorted((a, b) => rank(a) - rank(b));
  const again = html`<button type="button" class="small" onClick=${checks.refresh}>Check again</button>`;
  return html`
    <h1>Health</h1>
    <div class="columns">
      <${Card} title="This gateway" id="gateway-title">
        ${state.value === undefined ? html`<p class="empty">${state.fault === undefined ? 'Loading …' : inWords(state.fault)}</p>` : html`<${Gateway} ...${state.value} />`}
      <//>
      <${Card} title="Redis and the plan table" id="table-title">
        ${state.value === undefined ? html`<p class="empty">–</p>` : html`<${RedisFacts} ...${state.value} /><${PlanTableState} ...${state.value.planTable} />`}
      <//>
    </div>
    <${CoresCard} state=${state.value} fault=${state.fault} />
    ${state.value?.workers !== undefined && html`<${WorkersCard} workers=${state.value.workers} />`}
    <${Card} title="Checks" id="checks-title" actions=${again}>
      <${Table} label="Checks" columns=${COLUMNS} rows=${findings} fault=${checks.fault}
        idOf=${({ about, found }: SeenFinding) => about + found} empty="Nothing has been checked." />
    <//>
  `;
}

const rank = ({ status }: SeenFinding): number => ['fault', 'unknown', 'warning', 'good'].indexOf(status);

function Gateway({ mode, modeSince, since, workers, totals }: TrafficAnswer) {
  const isLocal = mode === 'local';
  return html`
    <dl class="facts">
      <div>
        <dt>Decisions</dt>
        <dd>
          <span class=${`badge ${isLocal ? 'fault' : 'good'}`}>${isLocal ? 'In this gateway' : 'Exact'}</span>
          ${isLocal && html` since <${When} at=${modeSince} />`}
        </dd>
      </div>
      <div><dt>Started</dt><dd><${When} at=${since} /></dd></div>
      <div>
        <dt>Processes</dt>
        <dd>${workers === undefined ? '1 process serves' : html`<span class=${`badge ${workers.serving < workers.wanted ? 'warning' : 'good'}`}>${workers.serving} of ${workers.wanted} workers serve</span>`}</dd>
      </div>
      <div>
        <dt>Since the start</dt>
        <dd>
          ${totalsInWords(totals)}
        </dd>
      </div>
    </dl>
  `;
}

const totalsInWords = (totals: TrafficAnswer['totals']): string =>
  [
    `${number(totals.admitted)} admitted`,
    `${number(totals.refused)} refused`,
    `${number(totals.banned)} refused by a ban`,
    `${number(totals.forbidden)} outside their scope`,
    `${number(totals.unauthorized)} without a valid key`,
    `${number(totals.shed)} shed under load`,
    `${number(totals.undecided)} undecided`,
    `${number(totals.local)} decided without Redis`,
  ].join(', ');

function PlanTableState({ version, changedAt, rejected }: TrafficAnswer['planTable']) {
  return html`
    <dl class="facts">
      <div><dt>Plans in force since</dt><dd><${When} at=${changedAt} /></dd></div>
      <div><dt>Version</dt><dd><code class="id">${version ?? '–'}</code></dd></div>
      <div>
        <dt>Rejected values</dt>
        <dd>
          ${
            rejected.length === 0
              ? 'None. Every stored value is in force.'
              : html`<ul class="plain">${rejected.map((one) => html`<li class="wordy">${rejectedInWords(one)}</li>`)}</ul>`
          }
        </dd>
      </div>
    </dl>
  `;
}

/** Describes an invalid value, and the one that stays in force. */
export const rejectedInWords = ({ field, value, kept }: TrafficAnswer['planTable']['rejected'][number]): string =>
  `${tableFieldInWords(field)}: ${value === undefined ? 'is missing' : `“${value}” is rejected`}${kept === undefined ? '' : `, ${kept} stays in force`}.`;
