import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { Card, type Column, type Content, html, markOf, Table } from './parts.ts';

/** One series of a chart. Bars are stacked on those of the previous series. */
export interface Series {
  readonly label: string;
  /** A colour by its name in base.css. */
  readonly color: string;
  readonly kind: 'bars' | 'line';
  /** A value is null if it is unknown. */
  readonly values: readonly (number | null)[];
}

/** An event, drawn as a line in the chart. */
export interface Mark {
  readonly at: number;
  readonly text: string;
}

export type Step = 'minute' | 'day';

interface ChartProps {
  readonly title: string;
  /** Shown beside the title. */
  readonly actions?: Content;
  /** Unix times in seconds, ascending. */
  readonly times: readonly number[];
  readonly series: readonly Series[];
  readonly marks?: readonly Mark[];
  readonly step: Step;
  format(value: number | null): string;
  /** Adds text to the values at the pointer. */
  noteAt?(index: number): string;
}

/** A card with a chart. Its legend shows the values at the pointer, and a table lists all values. */
export function Chart(props: ChartProps) {
  const { title, actions, times, series, marks = [], step, format, noteAt } = props;
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const [pointed, setPointed] = useState<number | undefined>();
  const latest = useRef(props);
  latest.current = props;

  useEffect(() => {
    const root = place.current as HTMLDivElement;
    const { width } = root.getBoundingClientRect();
    const drawn = new uPlot(
      optionsOf(() => latest.current, width, setPointed),
      dataOf(props),
      root,
    );
    plot.current = drawn;
    const resized = new ResizeObserver(([entry]) => {
      const width = entry?.contentRect.width ?? 0;
      if (width > 0) drawn.setSize({ width, height: drawn.height });
    });
    resized.observe(root);
    const redraw = () => drawn.redraw();
    isDark.addEventListener('change', redraw);
    return () => {
      resized.disconnect();
      isDark.removeEventListener('change', redraw);
      drawn.destroy();
    };
  }, []);

  useEffect(() => plot.current?.setData(dataOf(props)), [times, series, marks]);

  const index = pointed !== undefined && pointed < times.length ? pointed : times.length - 1;
  const at = times[index];
  return html`
    <${Card} title=${title} actions=${actions}>
    <figure class="chart">
      <figcaption>
        <span class="legend note">
          ${at !== undefined && html`<time>${timeText(at, step)}</time>`}
          ${series.map(
            ({ label, color, kind, values }) =>
              html`<span class=${`key-of ${kind}`} style=${markOf(color)}>${label} <b>${format(values[index] ?? null)}</b></span>`,
          )}
          ${at !== undefined && noteAt !== undefined && html`<span>${noteAt(index)}</span>`}
        </span>
      </figcaption>
      <div class="plot" ref=${place} aria-hidden="true"></div>
      ${
        marks.length > 0 &&
        html`<ul class="marks note">
          ${marks.map(({ at, text }) => html`<li><time>${timeText(at, 'minute')}</time> ${text}</li>`)}
        </ul>`
      }
      <details class="as-table note">
        <summary>${title} as a table</summary>
        <${AsTable} ...${props} />
      </details>
    </figure>
    <//>
  `;
}

/** Lists the newest values first, and leaves out unknown ones at the start. */
function AsTable({ title, times, series, step, format }: ChartProps) {
  const isKnown = (row: number) => series.some(({ values }) => typeof values[row] === 'number');
  const rows = [...times.keys()];
  const firstKnown = Math.max(0, rows.findIndex(isKnown));
  const columns: readonly Column<number>[] = [
    { title: 'Time', show: (row) => timeText(times[row] as number, step) },
    ...series.map(({ label, values }) => ({
      title: label,
      isFigure: true,
      show: (row: number) => format(values[row] ?? null),
    })),
  ];
  return html`
    <div tabindex="0" role="region" aria-label=${title}>
      <${Table} label=${title} columns=${columns} rows=${rows.slice(firstKnown).reverse()} idOf=${(row: number) => times[row]} />
    </div>
  `;
}

/** Bars are stacked, so each series holds the sum of all series up to it. */
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

const CLOCK = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
/** Days are UTC days, as the gateway counts them. */
const DATE = { day: 'numeric', month: 'short', timeZone: 'UTC' } as const;

/**
 * For each step: the possible distances between labels on the axis, in whole steps, because fractions would repeat a
 * label; the formats of times on the axis and elsewhere; and the ranges to choose from, in full steps and in words. The
 * current, unfinished step is shown in addition. The gateway keeps no data older than the longest range.
 */
const STEPS = {
  minute: {
    seconds: 60,
    apart: [1, 2, 5, 10, 20, 30, 60],
    tick: CLOCK,
    text: CLOCK,
    ranges: [
      [15, '15 minutes'],
      [60, '1 hour'],
    ],
  },
  day: {
    seconds: 86_400,
    apart: [1, 2, 4, 7, 14],
    tick: new Intl.DateTimeFormat('en-GB', DATE),
    text: new Intl.DateTimeFormat('en-GB', { weekday: 'short', ...DATE }),
    ranges: [
      [7, '7 days'],
      [35, '35 days'],
    ],
  },
} as const;

const timeText = (seconds: number, step: Step): string => STEPS[step].text.format(seconds * 1_000);

const isDark = matchMedia('(prefers-color-scheme: dark)');

const probe = document.createElement('span');
probe.style.setProperty('forced-color-adjust', 'none');

/** Computes the current value of a colour in base.css, because a canvas does not support `light-dark()`. */
function colorOf(name: string): string {
  document.body.append(probe);
  probe.style.color = `var(--${name})`;
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/**
 * @param read returns the current properties
 * @param point called with the index at the pointer, or with undefined once the pointer has left
 */
function optionsOf(read: () => ChartProps, width: number, point: (index: number | undefined) => void): uPlot.Options {
  const { series, step, format } = read();
  const { seconds: length, apart, tick } = STEPS[step];
  const axis = {
    stroke: () => colorOf('quiet'),
    font: '12px system-ui, sans-serif',
    grid: { stroke: () => colorOf('line'), width: 1 },
    ticks: { show: false },
  };
  const bars = uPlot.paths.bars?.({ size: [0.75, 40], gap: 1 });
  return {
    width,
    height: 200,
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { show: false }, sync: { key: step } },
    padding: [12, 20, 0, 0],
    // Days start at midnight UTC.
    ...(step === 'day' && { tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1_000), 'Etc/UTC') }),
    scales: {
      x: { time: true, range: (_, min, max) => [min - length / 2, max + length / 2] },
      y: { range: (_, __, max) => [0, Math.max(max * 1.05, series.some(({ kind }) => kind === 'bars') ? 4 : 0.001)] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        size: 28,
        space: 60,
        incrs: apart.map((steps) => steps * length),
        values: (_, times) => times.map((at) => tick.format(at * 1_000)),
      },
      { ...axis, size: 56, space: 36, values: (_, values) => values.map((value) => format(value)) },
    ],
    series: [
      {},
      ...series
        .map(({ color, kind }) => {
          const stroke = () => colorOf(color);
          const points = { show: false, filter: lonely, size: 7, fill: stroke };
          if (kind === 'line') return { stroke, width: 2, points, spanGaps: false };
          return { stroke, fill: stroke, width: 0, points: { show: false }, ...(bars && { paths: bars }) };
        })
        .reverse(),
    ],
    hooks: {
      setCursor: [({ cursor }) => point(cursor.idx ?? undefined)],
      draw: [(plot) => drawMarks(plot, read(), colorOf('accent'))],
    },
  };
}

/** Finds values without a neighbour. No line connects them, so each is drawn as a dot. */
function lonely({ data }: uPlot, series: number): number[] {
  const values = data[series] ?? [];
  const isKnown = (at: number) => typeof values[at] === 'number';
  return [...values.keys()].filter((at) => isKnown(at) && !isKnown(at - 1) && !isKnown(at + 1));
}

function drawMarks({ ctx, bbox, valToPos }: uPlot, { marks = [] }: ChartProps, color: string): void {
  ctx.save();
  ctx.strokeStyle = color;
  ctx.fillStyle = color;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const { at } of marks) {
    const x = Math.round(valToPos(at, 'x', true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.beginPath();
    ctx.arc(x, bbox.top, 4 * devicePixelRatio, 0, 2 * Math.PI);
    ctx.fill();
  }
  ctx.restore();
}

/** Names a range, such as `The last 15 minutes` or `The last hour`. */
export const lastInWords = (step: Step, length: number): string =>
  `The last ${(STEPS[step].ranges.find(([one]) => one === length)?.[1] ?? '').replace(/^1 /, '')}`;

/** Lets the reader choose a range, initially the longest. @returns its length in steps, and the buttons */
export function useTimeRange(step: Step): readonly [length: number, buttons: Content] {
  const [length, choose] = useState<number>(STEPS[step].ranges[1][0]);
  const buttons = html`
    <div class="bar" role="group" aria-label="Time range">
      ${STEPS[step].ranges.map(
        ([one, words]) =>
          html`<button type="button" class="small" aria-pressed=${one === length} onClick=${() => choose(one)}>${words}</button>`,
      )}
    </div>
  `;
  return [length, buttons];
}

/** Returns the starts of `length` full steps and of the current one, in Unix seconds. */
export function timesUpTo(now: number, step: Step, length: number): number[] {
  const { seconds } = STEPS[step];
  const last = Math.floor(now / seconds) * seconds;
  return Array.from({ length: length + 1 }, (_, at) => last - (length - at) * seconds);
}
