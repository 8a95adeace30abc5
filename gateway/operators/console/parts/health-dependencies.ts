import type { TrafficAnswer } from '../../api/answers.ts';
import { html } from '../html.ts';
import { counted, milliseconds, number } from '../words.ts';
import { Card, When } from './pieces.ts';
import { type Column, Table } from './table.ts';

/** What the gateway sees of the cores, of Redis and of its own processes. */

type Core = TrafficAnswer['cores'][number];
type Redis = TrafficAnswer['redis'];
type Worker = NonNullable<TrafficAnswer['workers']>['each'][number];

const CORE_STATES: Readonly<Record<Core['state'], readonly [badge: string, text: string]>> = {
  up: ['good', 'Up'],
  unproven: ['', 'No request yet'],
  silent: ['warning', 'Reads go elsewhere'],
  draining: ['warning', 'Draining'],
  out: ['fault', 'Out'],
};

const FAULTS: Readonly<Record<NonNullable<Core['lastFault']>['kind'], string>> = {
  broken: 'The response was cut off or invalid',
  timeout: 'No response in time',
  unreachable: 'Could not be reached',
  token: 'It rejects our token',
  full: 'Too many requests were waiting for it',
};

const MODES: Readonly<Record<Redis['mode'], string>> = {
  single: 'One Redis',
  cluster: 'A cluster',
  sentinel: 'A primary, found through sentinels',
  embedded: 'None. Limits are embedded in this process',
};

const nothing = html`<span class="note">none yet</span>`;

interface Props {
  /** Undefined until the first answer. */
  readonly state: TrafficAnswer | undefined;
  readonly fault: Error | undefined;
}

/** Shows the cores as the requests of clients find them. */
export function CoresCard({ state, fault }: Props) {
  const processes = state?.processes ?? 1;
  const columns: readonly Column<Core>[] = [
    { title: 'Core', show: ({ origin }) => html`<code class="address">${origin}</code>` },
    { title: 'State', show: (core) => html`<${CoreState} core=${core} processes=${processes} />` },
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
    <${Card} title="Cores" id="cores-title">
      <${Table} label="Cores" columns=${columns} rows=${state?.cores} fault=${fault} idOf=${({ origin }: Core) => origin}
        empty="No name in CORE_URL has an address." />
      ${state !== undefined && html`<p class="note">${coverage(state)} Requests shed under load since the start: ${number(state.totals.shed)}.</p>`}
    <//>
  `;
}

/** Names the processes that the numbers cover. */
function coverage({ workers, processes }: TrafficAnswer): string {
  if (workers === undefined)
    return 'The numbers cover only this gateway. Other gateways have a Health page of their own.';
  return `The numbers cover ${processes} of ${workers.wanted} workers of this gateway, and are at most half a second old. Other gateways have a Health page of their own.`;
}

function CoreState({ core: { state, seenBy, since, reason }, processes }: { core: Core; processes: number }) {
  const [badge, text] = CORE_STATES[state];
  return html`
    <span class=${`badge ${badge}`}>${text}</span>
    ${seenBy < processes && state !== 'up' && html` <span class="note">in ${seenBy} of ${processes} workers</span>`}
    ${state !== 'unproven' && state !== 'silent' && html` since <${When} at=${since} />`}
    ${reason !== undefined && html`<span class="wordy under">${reason}</span>`}
  `;
}

/** Shows the connection that makes decisions, and how fast it is. */
export function RedisFacts({ redis, processes }: Pick<TrafficAnswer, 'redis' | 'processes'>) {
  const { mode, connected, since, lastCall, p99, missedDeadlines } = redis;
  if (mode === 'embedded') return html`<dl class="facts"><div><dt>Redis</dt><dd>${MODES[mode]}</dd></div></dl>`;
  const isWell = connected === processes;
  const text = isWell ? 'Connected' : processes > 1 ? `${connected} of ${processes} workers connected` : 'Away';
  return html`
    <dl class="facts">
      <div><dt>Redis</dt><dd>${MODES[mode]}</dd></div>
      <div>
        <dt>Connection</dt>
        <dd><span class=${`badge ${isWell ? 'good' : 'fault'}`}>${text}</span>${since !== undefined && html` since <${When} at=${since} />`}</dd>
      </div>
      <div>
        <dt>Last decision</dt>
        <dd>${lastCall === undefined ? nothing : html`${milliseconds(lastCall.ms)}, <${When} at=${lastCall.at} />`}</dd>
      </div>
      <div>
        <dt>Since the start</dt>
        <dd>${`99 % of calls within ${milliseconds(p99)}, ${counted(missedDeadlines, 'missed deadline')}`}</dd>
      </div>
    </dl>
  `;
}

const WORKERS: readonly Column<Worker>[] = [
  { title: 'Worker', show: ({ worker }) => String(worker) },
  {
    title: 'State',
    show: ({ pid }) =>
      html`<span class=${`badge ${pid === undefined ? 'fault' : 'good'}`}>${pid === undefined ? 'Does not serve' : 'Serves'}</span>`,
  },
  { title: 'Since', show: ({ since }) => html`<${When} at=${since} />` },
  { title: 'Process', isFigure: true, show: ({ pid }) => pid ?? '–' },
];

/** Shown only if there are several workers. */
export const WorkersCard = ({ workers }: { workers: NonNullable<TrafficAnswer['workers']> }) => html`
  <${Card} title="Workers" id="workers-title">
    <${Table} label="Workers" columns=${WORKERS} rows=${workers.each} idOf=${({ worker }: Worker) => worker} empty="" />
  <//>
`;
