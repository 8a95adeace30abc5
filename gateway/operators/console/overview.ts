import type {
  HistoryAnswer,
  KeysAnswer,
  KeyView,
  MinuteReport,
  MinutesAnswer,
  PlanChangeView,
  TopAnswer,
} from '../api/answers.ts';
import { loudestFirst } from '../api/key-order.ts';
import { inOrder } from '../clients.ts';
import { useKeyList, usePolled } from './api.ts';
import { Chart, lastInWords, type Mark, type Series, timesUpTo, useTimeRange } from './chart.ts';
import { type Column, html, KeyLink, Meter, Missing, markOf, StateOf, TableCard } from './parts.ts';
import {
  clock,
  counted,
  milliseconds,
  number,
  percent,
  planInWords,
  tableFieldInWords,
  valueInWords,
} from './words.ts';

/** Shows the last hour or 15 minutes of this gateway, and the keys that need attention. */
export function OverviewPage() {
  const { value, fault } = usePolled<MinutesAnswer>('/traffic/minutes', 3_000);
  const history = usePolled<HistoryAnswer>('/plans/history?limit=20', 10_000);
  const [length, range] = useTimeRange('minute');
  return html`
    <div class="page-head">
      <h1>Overview</h1>
      ${range}
    </div>
    ${
      value === undefined
        ? html`<${Missing} fault=${fault} />`
        : html`<${Traffic} ...${value} length=${length} changes=${history.value?.history ?? []} />`
    }
    <div class="columns">
      <${BusiestKeys} />
      <${NearTheirLimit} />
    </div>
  `;
}

interface TrafficProps extends MinutesAnswer {
  readonly length: number;
  readonly changes: readonly PlanChangeView[];
}

function Traffic({ minutes: known, since, length, changes }: TrafficProps) {
  const byTime = new Map(known.map((minute) => [Date.parse(minute.at) / 1_000, minute]));
  const times = timesUpTo(Math.max(...byTime.keys()), 'minute', length);
  const shown = times.map((at) => byTime.get(at));
  const minutes = shown.filter((minute) => minute !== undefined);
  const sum = (of: (minute: MinuteReport) => number) => minutes.reduce((total, minute) => total + of(minute), 0);
  const [admitted, refused, banned] = [sum((m) => m.admitted), sum((m) => m.refused), sum((m) => m.banned)];
  const mostBanned = Math.max(0, ...minutes.map(({ bannedKeys }) => bannedKeys));
  const decided = admitted + refused + banned;
  const errors = sum(({ serverErrors }) => serverErrors);
  const last = minutes.findLast(({ p99 }) => p99 !== null);
  const marks = marksOf(changes, times[0] ?? 0);
  const series = (
    label: string,
    color: string,
    kind: Series['kind'],
    of: (minute: MinuteReport) => number | null,
  ): Series => {
    return { label, color, kind, values: shown.map((minute) => (minute === undefined ? null : of(minute))) };
  };
  const requests = [
    series('Admitted', 'admitted', 'bars', (m) => m.admitted),
    series('Refused', 'refused', 'bars', (m) => m.refused),
    series('Refused by a ban', 'banned', 'bars', (m) => m.banned),
  ];
  const durations = [series('p50', 'accent', 'line', (m) => m.p50), series('p99', 'p99', 'line', (m) => m.p99)];
  const failures = [series('Server errors', 'banned', 'bars', (m) => m.serverErrors)];
  const isYoung = Date.parse(since) / 1_000 > (times[0] ?? 0);
  return html`
    <dl class="tiles">
      <${Tile} name="Admitted" value=${number(admitted)} note=${percent(admitted, decided)} color="admitted" />
      <${Tile} name="Refused" value=${number(refused)} note=${percent(refused, decided)} color="refused" />
      <${Tile} name="Refused by a ban" value=${number(banned)} note=${`at most ${counted(mostBanned, 'key')} at once`} color="banned" />
      <${Tile} name="Server errors" value=${number(errors)} note="responses with 5xx" color=${errors > 0 ? 'banned' : 'edge'} />
      <${Tile} name="Response time" value=${milliseconds(last?.p50 ?? null)} note=${`p99 ${milliseconds(last?.p99 ?? null)}${last === undefined ? '' : `, at ${clock(last.at)}`}`} color="accent" />
    </dl>
    <p class="note">
      ${lastInWords('minute', length)} of this gateway, by minute${isYoung ? `. It started at ${clock(since)}; there is no earlier data` : ''}.
    </p>
    <${Chart} title="Requests per minute" step="minute" times=${times} series=${requests} marks=${marks} format=${number}
      noteAt=${(at: number) => keysNote(shown[at])} />
    <div class="columns">
      <${Chart} title="Response time" step="minute" times=${times} series=${durations} format=${milliseconds} />
      <${Chart} title="Server errors per minute" step="minute" times=${times} series=${failures} format=${number} />
    </div>
  `;
}

const Tile = ({ name, value, note, color }: Readonly<Record<'name' | 'value' | 'note' | 'color', string>>) =>
  html`<div class="tile" style=${markOf(color)}><dt>${name}</dt><dd><b>${value}</b> <span class="note">${note}</span></dd></div>`;

const keysNote = (minute: MinuteReport | undefined): string =>
  minute === undefined || minute.banned === 0 ? '' : `of ${counted(minute.bannedKeys, 'banned key')}`;

/** Converts the changes to plans since a time to marks in a chart. */
const marksOf = (changes: readonly PlanChangeView[], from: number): Mark[] =>
  changes
    .map(({ at, author, changes: made }) => ({
      at: Date.parse(at) / 1_000,
      text: `${author} changed ${made.map(({ field, from: old, to }) => `${tableFieldInWords(field)}: ${valueInWords(old, field)} → ${valueInWords(to, field)}`).join('; ')}`,
    }))
    .filter(({ at }) => at >= from);

const SHOWN = 8;

const LOUD: readonly Column<TopAnswer['keys'][number]>[] = [
  { title: 'Key', show: (key) => html`<${KeyLink} ...${key} />` },
  { title: 'State', show: StateOf },
  { title: 'Requests', isFigure: true, show: ({ recent }) => number(recent.admitted + recent.refused) },
  {
    title: 'Refused',
    isFigure: true,
    show: ({ recent: { admitted, refused } }) =>
      html`${number(refused)} ${refused > 0 && html`<span class="note">${percent(refused, admitted + refused)}</span>`}`,
  },
];

/** Lists the keys with the most requests in the last few minutes. */
function BusiestKeys() {
  const { value, fault } = useKeyList<TopAnswer>('/keys/top', { limit: String(SHOWN) }, loudestFirst('requests'));
  return html`
    <${TableCard} title="Busiest keys" actions=${html`<span class="note">last ${value?.minutes ?? 5} minutes</span>`}
      columns=${LOUD} rows=${value?.keys} fault=${fault} empty="No key sent a request in this period." />
  `;
}

const NEAR: readonly Column<KeyView>[] = [
  { title: 'Key', show: (key) => html`<${KeyLink} ...${key} />` },
  { title: 'Plan', show: ({ plan }) => planInWords(plan) },
  { title: 'State', show: StateOf },
  { title: 'Used today', show: ({ buckets }) => html`<${Meter} bucket=${buckets?.day} label="Day" />` },
];

/** Lists the keys that have used at least 80 % of their day limit, the most used first. */
function NearTheirLimit() {
  const asked = { near: '80', sort: 'used', limit: String(SHOWN + 1) };
  const { value, fault } = useKeyList<KeysAnswer>('/keys', asked, inOrder('used'));
  const more = value?.keys[SHOWN] !== undefined && html`<a href="/console/keys?near=80&sort=used">All of them</a>`;
  return html`
    <${TableCard} title="Near their day limit" actions=${more || html`<span class="note">80 % or more used</span>`}
      columns=${NEAR} rows=${value?.keys.slice(0, SHOWN)} fault=${fault} empty="No key has used 80 % of its day limit." />
  `;
}
