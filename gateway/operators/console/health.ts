import type { CheckResult, DoctorAnswer, TrafficAnswer } from '../api/answers.ts';
import { bodyOf, type Polled, refresh, usePolled, useTrouble } from './api.ts';
import { Card, type Column, type Content, Facts, html, Missing, TableCard, When } from './parts.ts';
import { counted, milliseconds, number, tableFieldInWords, upperFirst } from './words.ts';

/** The health of everything that the gateway depends on. */

const COLUMNS: readonly Column<CheckResult>[] = [
  { title: 'What', show: ({ about }) => html`<span class="wordy">${about}</span>` },
  { title: 'State', show: ({ status }) => stated(status, upperFirst(status)) },
  { title: 'Found', show: ({ found }) => html`<span class="wordy">${found}</span>` },
  { title: 'Since', show: ({ since }) => html`<${When} at=${since} none="–" />` },
  { title: 'What to do', show: ({ advice = '–' }) => html`<span class="wordy">${withLinks(advice)}</span>` },
];

/** The name of an alarm, which is also that of its section in the runbook. */
const ALARM = /\b(Gateway[A-Z]\w+)\b/;

/** Links each section of the runbook that a text names. */
const withLinks = (text: string): Content[] =>
  text
    .split(ALARM)
    .map((part, at) => (at % 2 === 0 ? part : html`<a href=${`/runbook#${part.toLowerCase()}`}>${part}</a>`));

export function HealthPage() {
  const state = usePolled<TrafficAnswer>('/traffic', 1_000);
  const bad = state.value?.findings ?? [];
  // When the result of a quick check changes, earlier results of the doctor may be out of date, so it runs again.
  const results = bad.map(({ about, status }) => `${about} ${status}`).join();
  const checks = usePolled(`/doctor ${results}`, bad.length === 0 ? 10_000 : 2_000, () =>
    bodyOf<DoctorAnswer>('/doctor'),
  );
  const findings = checks.value || bad.length > 0 ? newestOf(checks.value?.findings ?? [], bad) : undefined;
  const again = html`<button type="button" class="small" onClick=${refresh}>Check again</button>`;
  const trouble = useTrouble();
  // What was last known about a silent gateway may no longer be true.
  if (trouble?.kind === 'silent')
    return html`<h1>Health</h1><${SilentGateway} since=${trouble.since} again=${again} />`;
  return html`
    <h1>Health</h1>
    <div class="columns">
      <${Card} title="This gateway">
        ${state.value === undefined ? html`<${Missing} fault=${state.fault} />` : html`<${Gateway} ...${state.value} />`}
      <//>
      <${Card} title="Redis and the plan table">
        ${state.value === undefined ? html`<p class="empty">–</p>` : html`<${RedisFacts} ...${state.value} /><${PlanTableState} ...${state.value.planTable} />`}
      <//>
    </div>
    <${CoresCard} ...${state} />
    ${state.value?.workers !== undefined && html`<${WorkersCard} state=${state.value} each=${state.value.workers.each} />`}
    <${TableCard} title="Checks" actions=${again} columns=${COLUMNS} rows=${findings} fault=${checks.fault}
      idOf=${({ about, found }: CheckResult) => about + found} empty="Nothing has been checked." />
  `;
}

function SilentGateway({ since, again }: { since: Date; again: Content }) {
  const finding: CheckResult = {
    ...{ about: 'this gateway', status: 'unknown', found: 'does not respond', since: since.toISOString() },
    advice: 'Check its process and its log. The state of everything else is unknown until it responds.',
  };
  return html`<${TableCard} title="Checks" actions=${again} columns=${COLUMNS} rows=${[finding]} idOf=${({ about }: CheckResult) => about} />`;
}

/** Merges the doctor's findings with the failed quick checks, which run more often. The worst ones come first. */
function newestOf(all: readonly CheckResult[], bad: readonly CheckResult[]): CheckResult[] {
  const others = all.filter(({ about }) => !bad.some((one) => one.about === about));
  return [...bad, ...others].toSorted((a, b) => rank(a) - rank(b));
}

const rank = ({ status }: CheckResult): number => ['fault', 'unknown', 'warning', 'good'].indexOf(status);

/** Finds the failed check of a dependency. It takes precedence over the results of the last requests to it. */
const findingAbout = ({ findings }: TrafficAnswer, about: string): CheckResult | undefined =>
  findings.find((one) => one.about === about);

const findingOfRedis = (state: TrafficAnswer): CheckResult | undefined =>
  state.redis.mode === 'cluster'
    ? state.findings.find(({ about }) => about.startsWith('redis'))
    : findingAbout(state, 'redis');

const findingOfWorker = (state: TrafficAnswer, worker: number): CheckResult | undefined =>
  findingAbout(state, `worker ${worker}`);

const runningIn = (state: TrafficAnswer): number | undefined =>
  state.workers?.each.filter((one) => isRunning(state, one)).length;

const isRunning = (state: TrafficAnswer, { worker, pid }: Worker): boolean =>
  pid !== undefined && findingOfWorker(state, worker) === undefined;

/** A badge and, if it is known, since when. */
const stated = (look: string, text: string, since?: string) => html`
  <span class=${`badge ${look}`}>${text}</span> ${since !== undefined && html`since <${When} at=${since} />`}
`;

const foundInWords = ({ status, found, since }: CheckResult) =>
  html`${stated(status, upperFirst(status), since)} <span class="wordy">It ${found}</span>`;

function Gateway(state: TrafficAnswer) {
  const { mode, modeSince, since, workers, totals } = state;
  const finding = findingOfRedis(state);
  const exact = finding ? stated('unknown', 'Unknown', finding.since) : stated('good', 'Exact');
  const decisions = mode === 'local' ? stated('fault', 'Local', modeSince) : exact;
  const running = runningIn(state);
  const look = running === workers?.wanted ? 'good' : 'warning';
  const serving = workers && stated(look, `${running} of ${workers.wanted} workers running`);
  const facts = [
    ['Decisions', decisions],
    ['Started', html`<${When} at=${since} />`],
    ['Processes', serving ?? '1 process running'],
    ['Since the start', totalsInWords(totals)],
  ];
  return html`<${Facts} of=${facts} />`;
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
  const bad =
    rejected.length > 0 &&
    html`<ul class="plain">${rejected.map((one) => html`<li class="wordy">${rejectedInWords(one)}</li>`)}</ul>`;
  const facts = [
    ['Plans in force since', html`<${When} at=${changedAt} />`],
    ['Version', html`<code class="id">${version ?? '–'}</code>`],
    ['Rejected values', bad || 'None. Every stored value is in force.'],
  ];
  return html`<${Facts} of=${facts} />`;
}

/** Describes an invalid value, and the one that stays in force. */
export const rejectedInWords = ({ field, value, kept }: TrafficAnswer['planTable']['rejected'][number]): string =>
  `${tableFieldInWords(field)}: ${value === undefined ? 'is missing' : `“${value}” is rejected`}${kept === undefined ? '' : `, ${kept} stays in force`}.`;

type Core = TrafficAnswer['cores'][number];
type Redis = TrafficAnswer['redis'];
type Worker = NonNullable<TrafficAnswer['workers']>['each'][number];

const CORE_STATES: Readonly<Record<Core['state'], readonly [badge: string, text: string]>> = {
  up: ['good', 'Up'],
  unproven: ['', 'No request yet'],
  silent: ['warning', 'Requests go to another core'],
  draining: ['warning', 'Draining'],
  out: ['fault', 'Not in use'],
};

const FAULTS: Readonly<Record<NonNullable<Core['lastFault']>['kind'], string>> = {
  broken: 'The response was cut off or invalid',
  timeout: 'No response in time',
  unreachable: 'Could not be reached',
  token: 'The core rejects our token',
  full: 'Too many requests were waiting for it',
};

const MODES: Readonly<Record<Redis['mode'], string>> = {
  single: 'A single Redis',
  cluster: 'A cluster',
  sentinel: 'A primary, found through sentinels',
  embedded: 'None: this gateway stores its own keys and limits',
};

const nothing = html`<span class="note">none yet</span>`;

/** Shows how clients' requests fare at each core. */
function CoresCard({ value: state, fault }: Polled<TrafficAnswer>) {
  const columns: readonly Column<Core>[] = [
    { title: 'Core', show: ({ origin }) => html`<code>${origin}</code>` },
    { title: 'State', show: (core) => state && html`<${CoreState} core=${core} of=${state} />` },
    { title: 'In progress', isFigure: true, show: ({ inFlight }) => number(inFlight) },
    { title: 'Waiting', isFigure: true, show: ({ waiting }) => number(waiting) },
    { title: 'Limit', isFigure: true, show: ({ limit }) => number(limit) },
    {
      title: 'Last response',
      show: ({ lastAnswer }) =>
        lastAnswer === undefined ? nothing : html`${milliseconds(lastAnswer.ms)}, <${When} at=${lastAnswer.at} />`,
    },
    {
      title: 'Last fault',
      show: ({ lastFault }) =>
        lastFault === undefined
          ? html`<span class="note">none</span>`
          : html`<span class="wordy">${FAULTS[lastFault.kind]}</span>, <${When} at=${lastFault.at} />`,
    },
  ];
  return html`
    <${TableCard} title="Cores" columns=${columns} rows=${state?.cores} fault=${fault} idOf=${({ origin }: Core) => origin}
      empty="No name in CORE_URL resolves to an address.">
      ${state !== undefined && html`<p class="note">${coverage(state)} Requests shed under load since the start: ${number(state.totals.shed)}.</p>`}
    <//>
  `;
}

/** Names the processes that the numbers cover. */
function coverage(state: TrafficAnswer): string {
  if (state.workers === undefined)
    return 'The numbers cover only this gateway. Other gateways have a Health page of their own.';
  return `The numbers cover ${runningIn(state)} of ${state.workers.wanted} workers of this gateway, and are at most half a second old. Other gateways have a Health page of their own.`;
}

function CoreState({ core, of }: { core: Core; of: TrafficAnswer }) {
  const { origin, state, seenBy, since, reason, lastFault } = core;
  const finding = findingAbout(of, `core ${origin}`);
  if (finding !== undefined && state !== 'out') return foundInWords(finding);
  const [badge, text] = CORE_STATES[state];
  // A core may have failed requests, or have been silent, while it counted as up.
  const hasSince = state === 'up' ? (lastFault?.at ?? '') < since : state !== 'unproven' && state !== 'silent';
  return html`
    ${stated(badge, text)}
    ${seenBy < of.processes && state !== 'up' && html` <span class="note">in ${seenBy} of ${of.processes} workers</span>`}
    ${hasSince && html` since <${When} at=${since} />`}
    ${reason !== undefined && html`<br /><span class="wordy">${reason}</span>`}
  `;
}

/** Shows the connection that decisions use, and its latency. */
function RedisFacts(state: TrafficAnswer) {
  const { redis, processes } = state;
  const { mode, connected, since, lastCall, p99, missedDeadlines } = redis;
  const finding = findingOfRedis(state);
  if (mode === 'embedded') return html`<${Facts} of=${[['Redis', MODES[mode]]]} />`;
  const isWell = connected === processes;
  const text = isWell ? 'Connected' : processes > 1 ? `${connected} of ${processes} workers connected` : 'Disconnected';
  const facts = [
    ['Redis', MODES[mode]],
    [
      'Connection',
      finding !== undefined && isWell ? foundInWords(finding) : stated(isWell ? 'good' : 'fault', text, since),
    ],
    [
      'Last decision',
      lastCall === undefined ? nothing : html`${milliseconds(lastCall.ms)}, <${When} at=${lastCall.at} />`,
    ],
    ['Since the start', `99 % of calls within ${milliseconds(p99)}, ${counted(missedDeadlines, 'missed deadline')}`],
  ];
  return html`<${Facts} of=${facts} />`;
}

const workerColumns = (state: TrafficAnswer): readonly Column<Worker>[] => [
  { title: 'Worker', show: ({ worker }) => String(worker) },
  {
    title: 'State',
    show({ worker, pid, isStarting }) {
      const finding = findingOfWorker(state, worker);
      if (pid !== undefined && finding !== undefined) return foundInWords(finding);
      if (isStarting) return stated('warning', 'Starting');
      return pid === undefined ? stated('fault', 'Not running') : stated('good', 'Running');
    },
  },
  { title: 'Since', show: ({ since }) => html`<${When} at=${since} />` },
  { title: 'Process', isFigure: true, show: ({ pid }) => pid ?? '–' },
];

/** Shown only if there are several workers. */
const WorkersCard = ({ state, each }: { state: TrafficAnswer; each: readonly Worker[] }) =>
  html`<${TableCard} title="Workers" columns=${workerColumns(state)} rows=${each} idOf=${({ worker }: Worker) => worker} empty="" />`;
