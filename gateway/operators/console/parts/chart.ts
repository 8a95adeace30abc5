import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { html } from '../html.ts';
import { type ChartProps, isDark, optionsOf, type Step } from './chart-options.ts';

/** A chart with axes. Its legend shows the values below the pointer, and a table has all of them. */
export function Chart(props: ChartProps) {
  const { title, times, series, marks = [], step, format, noteAt } = props;
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const [pointed, setPointed] = useState<number | undefined>();
  const latest = useRef(props);
  latest.current = props;
  const shape = series.map(({ label, kind }) => label + kind).join();

  useEffect(() => {
    const root = place.current as HTMLDivElement;
    const draw = () => {
      plot.current?.destroy();
      const { width } = root.getBoundingClientRect();
      plot.current = new uPlot(
        optionsOf(() => latest.current, width, setPointed),
        dataOf(latest.current),
        root,
      );
    };
    draw();
    const resized = new ResizeObserver(([entry]) => {
      const width = entry?.contentRect.width ?? 0;
      if (width > 0 && plot.current !== undefined) plot.current.setSize({ width, height: plot.current.height });
    });
    resized.observe(root);
    isDark.addEventListener('change', draw);
    return () => {
      resized.disconnect();
      isDark.removeEventListener('change', draw);
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [shape]);

  useEffect(() => plot.current?.setData(dataOf(latest.current)), [times, series, marks]);

  const index = pointed !== undefined && pointed < times.length ? pointed : times.length - 1;
  const at = times[index];
  return html`
    <figure class="chart">
      <figcaption>
        <span class="chart-title">${title}</span>
        <span class="legend">
          ${at !== undefined && html`<time>${timeText(at, step)}</time>`}
          ${series.map(
            ({ label, color, kind, values }) =>
              html`<span class=${`key-of ${kind} ${color}`}>${label} <b>${format(values[index] ?? null)}</b></span>`,
          )}
          ${at !== undefined && noteAt !== undefined && html`<span>${noteAt(index)}</span>`}
        </span>
      </figcaption>
      <div class="plot" ref=${place} aria-hidden="true"></div>
      ${
        marks.length > 0 &&
        html`<ul class="marks">
          ${marks.map(({ at, text }) => html`<li><time>${timeText(at, 'minute')}</time> ${text}</li>`)}
        </ul>`
      }
      <details class="as-table">
        <summary>${title} as a table</summary>
        <${AsTable} ...${props} />
      </details>
    </figure>
  `;
}

/** Lists the newest values first, and leaves out unknown ones at the start. */
function AsTable({ title, times, series, step, format }: ChartProps) {
  const firstKnown = times.findIndex((_, row) => series.some(({ values }) => typeof values[row] === 'number'));
  return html`
    <div class="scrolls" tabindex="0" role="region" aria-label=${title}>
      <table>
        <thead>
          <tr><th scope="col">Time</th>${series.map(({ label }) => html`<th scope="col" class="figure">${label}</th>`)}</tr>
        </thead>
        <tbody>
          ${times
            .map(
              (at, row) => html`<tr>
                <th scope="row">${timeText(at, step)}</th>
                ${series.map(({ values }) => html`<td class="figure">${format(values[row] ?? null)}</td>`)}
              </tr>`,
            )
            .slice(Math.max(0, firstKnown))
            .reverse()}
        </tbody>
      </table>
    </div>
  `;
}

/** Bars are stacked, so the data of each series is the sum up to it. */
function dataOf({ times, series }: ChartProps): uPlot.AlignedData {
  const sums = times.map(() => 0);
  const columns = series.map(({ kind, values }) =>
    kind === 'line'
      ? [...values]
      : values.map((value, at) => {
          sums[at] = (sums[at] ?? 0) + (value ?? 0);
          return value === null ? null : (sums[at] ?? 0);
        }),
  );
  // The highest sum is drawn first, and the lower ones on top of it.
  return [[...times], ...columns.reverse()];
}

const MINUTE = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
/** Days are UTC days, as the gateway counts them. */
const DAY = new Intl.DateTimeFormat('en-GB', { weekday: 'short', day: 'numeric', month: 'short', timeZone: 'UTC' });

export const timeText = (seconds: number, step: Step): string =>
  (step === 'minute' ? MINUTE : DAY).format(seconds * 1_000);
