import type { KeyUsageAnswer, UseOfTime } from '../../api/answers.ts';
import { get, keyPath } from '../api.ts';
import { html } from '../html.ts';
import { usePolled } from '../polled.ts';
import { number } from '../words.ts';
import { Chart } from './chart.ts';
import type { Series } from './chart-options.ts';
import { Card } from './pieces.ts';
import { inWords } from './table.ts';

const EVERY_MS = 5_000;
const [MINUTES, DAYS] = [60, 36];
const [MINUTE_SECONDS, DAY_SECONDS] = [60, 86_400];

/** The use of a key: its last hour by minute, and 35 days and today by day. */
export function KeyUse({ id }: { id: string }) {
  const { value, fault } = usePolled(
    `use ${id}`,
    EVERY_MS,
    async () => (await get<KeyUsageAnswer>(`${keyPath(id)}/usage`)).body,
  );
  if (value === undefined)
    return html`<${Card} title="Use" id="use-title"><p class="empty">${fault === undefined ? 'Asking the gateway …' : inWords(fault)}</p><//>`;
  const now = Date.parse(value.now) / 1_000;
  const minutes = filled(value.minutes, now, MINUTE_SECONDS, MINUTES);
  const days = filled(value.days, now, DAY_SECONDS, DAYS);
  return html`
    <div class="columns">
      <${Card} title="Last hour" id="hour-title">
        <${Chart} title="Requests a minute" step="minute" times=${minutes.times} series=${minutes.series} format=${count} />
      <//>
      <${Card} title="Last 35 days" id="days-title">
        <${Chart} title="Requests a day (UTC)" step="day" times=${days.times} series=${days.series} format=${count} />
      <//>
    </div>
  `;
}

const count = (value: number | null): string => (value === null ? '–' : number(value));

/** The gateway leaves idle times out; the chart shows them as 0. */
function filled(
  used: readonly UseOfTime[],
  now: number,
  step: number,
  length: number,
): { times: number[]; series: Series[] } {
  const last = Math.floor(now / step) * step;
  const times = Array.from({ length }, (_, at) => last - (length - 1 - at) * step);
  const byTime = new Map(used.map((one) => [Date.parse(one.at) / 1_000, one]));
  const values = (of: 'admitted' | 'refused') => times.map((at) => byTime.get(at)?.[of] ?? 0);
  return {
    times,
    series: [
      { label: 'Admitted', color: 'admitted', kind: 'bars', values: values('admitted') },
      { label: 'Refused', color: 'refused', kind: 'bars', values: values('refused') },
    ],
  };
}
