import { useState } from 'preact/hooks';
import type { KeyUsageAnswer } from '../../api/answers.ts';
import { get, keyPath } from '../api.ts';
import { html } from '../html.ts';
import { usePolled } from '../polled.ts';
import { number } from '../words.ts';
import { Chart } from './chart.ts';
import type { Series, Step } from './chart-options.ts';
import { Card } from './pieces.ts';
import { inWords } from './table.ts';
import { LONGEST, TimeRange, timesUpTo } from './time-range.ts';

const EVERY_MS = 5_000;

/** Shows the use of a key by minute, for up to an hour, and by day, for today and the 35 days before. */
export function KeyUse({ id }: { id: string }) {
  const { value, fault } = usePolled(
    `use ${id}`,
    EVERY_MS,
    async () => (await get<KeyUsageAnswer>(`${keyPath(id)}/usage`)).body,
  );
  if (value === undefined)
    return html`<${Card} title="Use" id="use-title"><p class="empty">${fault === undefined ? 'Loading …' : inWords(fault)}</p><//>`;
  const now = Date.parse(value.now) / 1_000;
  return html`
    <div class="columns">
      <${Use} title="Requests a minute" step="minute" used=${value.minutes} now=${now} />
      <${Use} title="Requests a day (UTC)" step="day" used=${value.days} now=${now} />
    </div>
  `;
}

interface UseProps {
  readonly title: string;
  readonly step: Step;
  /** Idle times are left out, and shown as 0. */
  readonly used: KeyUsageAnswer[`${Step}s`];
  readonly now: number;
}

function Use({ title, step, used, now }: UseProps) {
  const [length, choose] = useState<number>(LONGEST[step]);
  const times = timesUpTo(now, step, length);
  const byTime = new Map(used.map((one) => [Date.parse(one.at) / 1_000, one as KeyUsageAnswer['minutes'][number]]));
  const bars = (label: string, of: 'admitted' | 'refused' | 'banned'): Series => {
    return { label, color: of, kind: 'bars', values: times.map((at) => byTime.get(at)?.[of] ?? 0) };
  };
  const series = [bars('Admitted', 'admitted'), bars('Refused', 'refused')];
  // What bans refuse is known as long as the gateways remember the requests.
  if (step === 'minute') series.push(bars('Refused by a ban', 'banned'));
  return html`
    <${Card} title=${title} id=${`by-${step}-title`} actions=${html`<${TimeRange} ...${{ step, length, choose }} />`}>
      <${Chart} ...${{ title, step, times, series, format: count }} />
    <//>
  `;
}

const count = (value: number | null): string => (value === null ? '–' : number(value));
