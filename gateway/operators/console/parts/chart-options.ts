import uPlot from 'uplot';

/** How a chart is drawn: its axes, bars, lines and marks, in the colours of the page. */

/** One series of a chart. Bars are drawn on top of those of the series before it. */
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

export interface ChartProps {
  readonly title: string;
  /** Unix times in seconds, ascending. */
  readonly times: readonly number[];
  readonly series: readonly Series[];
  readonly marks?: readonly Mark[];
  readonly step: Step;
  format(value: number | null): string;
  /** Adds text to the values below the pointer. */
  noteAt?(index: number): string;
}

export const STEP_SECONDS = { minute: 60, day: 86_400 } as const;
/** Possible steps of the axis. They are whole numbers, because smaller steps would repeat the same text. */
const STEPS_APART = { minute: [1, 2, 5, 10, 20, 30, 60], day: [1, 2, 4, 7, 14] } as const;
export const CHART_HEIGHT = 200;
const FONT = '12px system-ui, sans-serif';

export const isDark = matchMedia('(prefers-color-scheme: dark)');

const probe = document.createElement('span');

/** Computes a colour of base.css as it is now, because a canvas does not support `light-dark()`. */
function colorOf(name: string): string {
  document.body.append(probe);
  probe.style.color = `var(--${name})`;
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** Days begin at midnight UTC. */
const inUtc = (seconds: number): Date => uPlot.tzDate(new Date(seconds * 1_000), 'Etc/UTC');

/**
 * @param read returns the current properties
 * @param point called with the index below the pointer; undefined when it has left
 */
export function optionsOf(
  read: () => ChartProps,
  width: number,
  point: (index: number | undefined) => void,
): uPlot.Options {
  const { series, step, format } = read();
  const line = colorOf('line');
  const axis = { stroke: colorOf('quiet'), font: FONT, grid: { stroke: line, width: 1 }, ticks: { show: false } };
  const bars = uPlot.paths.bars?.({ size: [0.75, 40], gap: 1 });
  return {
    width,
    height: CHART_HEIGHT,
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { show: false }, sync: { key: step } },
    padding: [12, 20, 0, 0],
    ...(step === 'day' && { tzDate: inUtc }),
    scales: {
      x: { time: true, range: (_, min, max) => [min - STEP_SECONDS[step] / 2, max + STEP_SECONDS[step] / 2] },
      y: { range: (_, __, max) => [0, Math.max(max * 1.05, series.some(({ kind }) => kind === 'bars') ? 4 : 0.001)] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        size: 28,
        space: 60,
        incrs: STEPS_APART[step].map((steps) => steps * STEP_SECONDS[step]),
        values: (_, times) => times.map((at) => tickText(at, step)),
      },
      { ...axis, size: 56, space: 36, values: (_, values) => values.map((value) => format(value)) },
    ],
    series: [
      {},
      ...series
        .map(({ color, kind }) => {
          const stroke = colorOf(color);
          if (kind === 'line')
            return {
              stroke,
              width: 2,
              points: { show: false, filter: lonely, size: 7, fill: stroke },
              spanGaps: false,
            };
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

/** Finds values without a neighbour. No line leads to them, so each is drawn as a dot. */
function lonely({ data }: uPlot, series: number): number[] {
  const values = data[series] ?? [];
  const isKnown = (at: number) => typeof values[at] === 'number';
  return [...values.keys()].filter((at) => isKnown(at) && !isKnown(at - 1) && !isKnown(at + 1));
}

const CLOCK = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const DATE = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', timeZone: 'UTC' });
const tickText = (seconds: number, step: Step): string => (step === 'minute' ? CLOCK : DATE).format(seconds * 1_000);

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
