import type { HistoryAnswer, MinuteReport, MinutesAnswer, PlanChangeView } from '../../api/answers.ts';
import { get } from '../api.ts';
import { html } from '../html.ts';
import { Chart } from '../parts/chart.ts';
import type { Mark, Series } from '../parts/chart-options.ts';
import { LoudestKeys, NearTheirLimit } from '../parts/key-rankings.ts';
import { Card } from '../parts/pieces.ts';
import { inWords } from '../parts/table.ts';
import { usePolled } from '../polled.ts';
import { clock, counted, milliseconds, number, percent, tableFieldInWords, valueInWords } from '../words.ts';

const EVERY_MS = 3_000;

/** The last hour of this gateway, and the keys to look at. */
export function OverviewPage() {
  const { value, fault } = usePolled(
    'minutes',
    EVERY_MS,
    async () => (await get<MinutesAnswer>('/traffic/minutes')).body,
  );
  const history = usePolled('history', 10_000, async () => (await get<HistoryAnswer>('/plans/history?limit=20')).body);
  const minutes = value?.minutes ?? [];
  return html`
    <h1>Overview</h1>
    ${value === undefined && html`<p class="empty">${fault === undefined ? 'Asking the gateway …' : inWords(fault)}</p>`}
    ${value !== undefined && html`<${Hour} minutes=${minutes} since=${value.since} changes=${history.value?.history ?? []} />`}
    <div class="columns">
      <${LoudestKeys} />
      <${NearTheirLimit} />
    </div>
  `;
}

interface HourProps {
  readonly minutes: readonly MinuteReport[];
  readonly since: string;
  readonly changes: readonly PlanChangeView[];
}

function Hour({ minutes, since, changes }: HourProps) {
  const sum = (of: (minute: MinuteReport) => number) => minutes.reduce((total, minute) => total + of(minute), 0);
  const [admitted, refused, banned] = [sum((m) => m.admitted), sum((m) => m.refused), sum((m) => m.banned)];
  const decided = admitted + refused + banned;
  const errors = sum(({ serverErrors }) => serverErrors);
  const last = minutes.findLast(({ p99 }) => p99 !== null);
  const times = minutes.map(({ at }) => Date.parse(at) / 1_000);
  const marks = marksOf(changes, times[0] ?? 0);
  const isYoung = minutes.length < 60;
  return html`
    <dl class="tiles">
      <${Tile} name="Admitted" value=${number(admitted)} note=${percent(admitted, decided)} color="admitted" />
      <${Tile} name="Refused" value=${number(refused)} note=${percent(refused, decided)} color="refused" />
      <${Tile} name="Refused by a ban" value=${number(banned)} note=${`at most ${counted(most(minutes), 'key')} at once`} color="banned" />
      <${Tile} name="Server errors" value=${number(errors)} note="answers with 5xx" color=${errors > 0 ? 'failed' : 'quiet'} />
      <${Tile} name="Time to answer" value=${milliseconds(last?.p50 ?? null)} note=${`p99 ${milliseconds(last?.p99 ?? null)}`} color="p50" />
    </dl>
    <p class="note">
      The last hour of this gateway, by minute${isYoung ? `. It started at ${clock(since)}; there is nothing before` : ''}.
    </p>
    <${Card} title="Requests a minute" id="requests-title">
      <${Chart}
        title="Requests a minute"
        step="minute"
        times=${times}
        series=${requestSeries(minutes)}
        marks=${marks}
        format=${count}
        noteAt=${(at: number) => keysNote(minutes[at])}
      />
    <//>
    <div class="columns">
      <${Card} title="Time to answer" id="time-title">
        <${Chart} title="Time to answer" step="minute" times=${times} series=${timeSeries(minutes)} format=${milliseconds} />
      <//>
      <${Card} title="Server errors a minute" id="errors-title">
        <${Chart} title="Server errors a minute" step="minute" times=${times} series=${errorSeries(minutes)} format=${count} />
      <//>
    </div>
  `;
}

const Tile = ({ name, value, note, color }: { name: string; value: string; note: string; color: string }) =>
  html`<div class=${`tile ${color}`}><dt>${name}</dt><dd><b>${value}</b> <span class="note">${note}</span></dd></div>`;

const count = (value: number | null): string => (value === null ? '–' : number(value));
const most = (minutes: readonly MinuteReport[]): number => Math.max(0, ...minutes.map(({ bannedKeys }) => bannedKeys));

const keysNote = (minute: MinuteReport | undefined): string =>
  minute === undefined || minute.banned === 0 ? '' : `of ${counted(minute.bannedKeys, 'banned key')}`;

const requestSeries = (minutes: readonly MinuteReport[]): Series[] => [
  { label: 'Admitted', color: 'admitted', kind: 'bars', values: minutes.map(({ admitted }) => admitted) },
  { label: 'Refused', color: 'refused', kind: 'bars', values: minutes.map(({ refused }) => refused) },
  { label: 'Refused by a ban', color: 'banned', kind: 'bars', values: minutes.map(({ banned }) => banned) },
];

const timeSeries = (minutes: readonly MinuteReport[]): Series[] => [
  { label: 'p50', color: 'p50', kind: 'line', values: minutes.map(({ p50 }) => p50) },
  { label: 'p99', color: 'p99', kind: 'line', values: minutes.map(({ p99 }) => p99) },
];

const errorSeries = (minutes: readonly MinuteReport[]): Series[] => [
  { label: 'Server errors', color: 'failed', kind: 'bars', values: minutes.map(({ serverErrors }) => serverErrors) },
];

/** The changes of plans since a time, as marks in the chart. */
const marksOf = (changes: readonly PlanChangeView[], from: number): Mark[] =>
  changes
    .map(({ at, author, changes: made }) => ({
      at: Date.parse(at) / 1_000,
      text: `${author} changed ${made.map(({ field, from: old, to }) => `${tableFieldInWords(field)}: ${valueInWords(old)} → ${valueInWords(to)}`).join('; ')}`,
    }))
    .filter(({ at }) => at >= from);
