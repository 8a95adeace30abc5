import { useState } from 'preact/hooks';
import type { HistoryAnswer, MinuteReport, MinutesAnswer, PlanChangeView } from '../../api/answers.ts';
import { get } from '../api.ts';
import { html } from '../html.ts';
import { Chart } from '../parts/chart.ts';
import type { Mark, Series } from '../parts/chart-options.ts';
import { BusiestKeys, NearTheirLimit } from '../parts/key-rankings.ts';
import { Card } from '../parts/pieces.ts';
import { inWords } from '../parts/table.ts';
import { LONGEST, lastInWords, TimeRange, timesUpTo } from '../parts/time-range.ts';
import { usePolled } from '../polled.ts';
import { clock, counted, milliseconds, number, percent, tableFieldInWords, valueInWords } from '../words.ts';

const EVERY_MS = 3_000;

/** Shows the last hour of this gateway, or a quarter of it, and the keys to look at. */
export function OverviewPage() {
  const { value, fault } = usePolled(
    'minutes',
    EVERY_MS,
    async () => (await get<MinutesAnswer>('/traffic/minutes')).body,
  );
  const history = usePolled('history', 10_000, async () => (await get<HistoryAnswer>('/plans/history?limit=20')).body);
  const [length, choose] = useState<number>(LONGEST.minute);
  return html`
    <div class="page-head">
      <h1>Overview</h1>
      <${TimeRange} step="minute" ...${{ length, choose }} />
    </div>
    ${value === undefined && html`<p class="empty">${fault === undefined ? 'Loading …' : inWords(fault)}</p>`}
    ${value !== undefined && html`<${Traffic} ...${value} length=${length} changes=${history.value?.history ?? []} />`}
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

/** A minute; undefined before the gateway started. */
type Minute = MinuteReport | undefined;

function Traffic({ minutes: known, since, length, changes }: TrafficProps) {
  const byTime = new Map(known.map((minute) => [Date.parse(minute.at) / 1_000, minute]));
  const times = timesUpTo(Math.max(...byTime.keys()), 'minute', length);
  const shown = times.map((at) => byTime.get(at));
  const minutes = shown.filter((minute) => minute !== undefined);
  const sum = (of: (minute: MinuteReport) => number) => minutes.reduce((total, minute) => total + of(minute), 0);
  const [admitted, refused, banned] = [sum((m) => m.admitted), sum((m) => m.refused), sum((m) => m.banned)];
  const decided = admitted + refused + banned;
  const errors = sum(({ serverErrors }) => serverErrors);
  const last = minutes.findLast(({ p99 }) => p99 !== null);
  const marks = marksOf(changes, times[0] ?? 0);
  const isYoung = Date.parse(since) / 1_000 > (times[0] ?? 0);
  return html`
    <dl class="tiles">
      <${Tile} name="Admitted" value=${number(admitted)} note=${percent(admitted, decided)} color="admitted" />
      <${Tile} name="Refused" value=${number(refused)} note=${percent(refused, decided)} color="refused" />
      <${Tile} name="Refused by a ban" value=${number(banned)} note=${`at most ${counted(most(minutes), 'key')} at once`} color="banned" />
      <${Tile} name="Server errors" value=${number(errors)} note="responses with 5xx" color=${errors > 0 ? 'failed' : 'quiet'} />
      <${Tile} name="Response time" value=${milliseconds(last?.p50 ?? null)} note=${`p99 ${milliseconds(last?.p99 ?? null)}`} color="p50" />
    </dl>
    <p class="note">
      ${lastInWords('minute', length)} of this gateway, by minute${isYoung ? `. It started at ${clock(since)}; there is no earlier data` : ''}.
    </p>
    <${Card} title="Requests a minute" id="requests-title">
      <${Chart}
        title="Requests a minute"
        step="minute"
        times=${times}
        series=${requestSeries(shown)}
        marks=${marks}
        format=${count}
        noteAt=${(at: number) => keysNote(shown[at])}
      />
    <//>
    <div class="columns">
      <${Card} title="Response time" id="time-title">
        <${Chart} title="Response time" step="minute" times=${times} series=${timeSeries(shown)} format=${milliseconds} />
      <//>
      <${Card} title="Server errors a minute" id="errors-title">
        <${Chart} title="Server errors a minute" step="minute" times=${times} series=${errorSeries(shown)} format=${count} />
      <//>
    </div>
  `;
}

const Tile = ({ name, value, note, color }: { name: string; value: string; note: string; color: string }) =>
  html`<div class=${`tile ${color}`}><dt>${name}</dt><dd><b>${value}</b> <span class="note">${note}</span></dd></div>`;

const count = (value: number | null): string => (value === null ? '–' : number(value));
const most = (minutes: readonly MinuteReport[]): number => Math.max(0, ...minutes.map(({ bannedKeys }) => bannedKeys));

const keysNote = (minute: Minute): string =>
  minute === undefined || minute.banned === 0 ? '' : `of ${counted(minute.bannedKeys, 'banned key')}`;

const valuesOf = (minutes: readonly Minute[], of: (minute: MinuteReport) => number | null): (number | null)[] =>
  minutes.map((minute) => (minute === undefined ? null : of(minute)));

const requestSeries = (minutes: readonly Minute[]): Series[] => [
  { label: 'Admitted', color: 'admitted', kind: 'bars', values: valuesOf(minutes, ({ admitted }) => admitted) },
  { label: 'Refused', color: 'refused', kind: 'bars', values: valuesOf(minutes, ({ refused }) => refused) },
  { label: 'Refused by a ban', color: 'banned', kind: 'bars', values: valuesOf(minutes, ({ banned }) => banned) },
];

const timeSeries = (minutes: readonly Minute[]): Series[] => [
  { label: 'p50', color: 'p50', kind: 'line', values: valuesOf(minutes, ({ p50 }) => p50) },
  { label: 'p99', color: 'p99', kind: 'line', values: valuesOf(minutes, ({ p99 }) => p99) },
];

const errorSeries = (minutes: readonly Minute[]): Series[] => [
  {
    label: 'Server errors',
    color: 'failed',
    kind: 'bars',
    values: valuesOf(minutes, ({ serverErrors }) => serverErrors),
  },
];

/** Shows the changes of plans since a time as marks in the chart. */
const marksOf = (changes: readonly PlanChangeView[], from: number): Mark[] =>
  changes
    .map(({ at, author, changes: made }) => ({
      at: Date.parse(at) / 1_000,
      text: `${author} changed ${made.map(({ field, from: old, to }) => `${tableFieldInWords(field)}: ${valueInWords(old)} → ${valueInWords(to)}`).join('; ')}`,
    }))
    .filter(({ at }) => at >= from);
