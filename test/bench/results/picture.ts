import type { ContenderName } from '../contenders.ts';
import type { Row, Summary } from './summary.ts';

/** The results as a picture: one bar per contender shows its requests per second relative to the baseline. */

const WIDTH = 920;
const LABEL = 160;
const NOTE = 220;
const BAR = 18;
const GAP = 6;
const HEAD = 40;
const TOP = 62;

const STYLE = `
  .paper { fill: #ffffff }
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 17px; font-weight: 600 }
  .scenario { font-weight: 600 }
  .quiet { fill: #59636e; font-size: 12px }
  .bar { fill: #8c959f }
  .ours { fill: #1a7f37 }
  .one { stroke: #59636e; stroke-dasharray: 3 3 }
  .spread { stroke: #1f2328; stroke-width: 1.5 }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117 }
    text { fill: #e6edf3 }
    .quiet { fill: #9198a1 }
    .bar { fill: #656c76 }
    .ours { fill: #3fb950 }
    .one { stroke: #9198a1 }
    .spread { stroke: #e6edf3 }
  }`;

/** @param baseline the contender to which the others are compared */
export function pictureOf(summaries: readonly Summary[], baseline: ContenderName, subtitle: string): string {
  const shown = summaries.filter(
    ({ rate, rows }) => rate === undefined && rows.some(({ ratio }) => ratio !== undefined),
  );
  const longest = Math.max(1, ...shown.flatMap(({ rows }) => rows.map(({ ratio }) => ratio?.high ?? 0)));
  const scale = (WIDTH - LABEL - NOTE) / longest;
  let y = TOP;
  const groups = shown.map((summary) => {
    const group = groupOf(summary, y, scale);
    y += HEAD + summary.rows.length * (BAR + GAP);
    return group;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${y + 20}" role="img" aria-label="Requests per second relative to ${baseline}">
<style>${STYLE}
</style>
<rect class="paper" width="100%" height="100%"/>
<text class="title" x="16" y="28">Requests per second, relative to ${baseline} = 1</text>
<text class="quiet" x="16" y="48">${escapeXml(subtitle)}</text>
${groups.join('\n')}
</svg>
`;
}

function groupOf({ name, title, rows }: Summary, top: number, scale: number): string {
  const first = top + HEAD - 6;
  const bottom = first + rows.length * (BAR + GAP) - GAP;
  const one = LABEL + scale;
  return [
    `<text class="scenario" x="16" y="${top + 22}">${name}</text>`,
    `<text class="quiet" x="${LABEL}" y="${top + 22}">${escapeXml(title)}</text>`,
    ...rows.map((row, at) => barOf(row, first + at * (BAR + GAP), scale)),
    `<line class="one" x1="${one.toFixed(1)}" x2="${one.toFixed(1)}" y1="${first - 3}" y2="${bottom + 3}"/>`,
  ].join('\n');
}

function barOf({ name, ratio, requestsPerSecond }: Row, y: number, scale: number): string {
  const label = `<text x="${LABEL - 8}" y="${y + 13}" text-anchor="end">${name}</text>`;
  if (ratio === undefined) return label;
  const [low, high] = [LABEL + ratio.low * scale, LABEL + ratio.high * scale];
  const middle = y + BAR / 2;
  const kind = name.startsWith('gateway') ? 'bar ours' : 'bar';
  const note = `${ratio.median.toFixed(2)}× (${ratio.low.toFixed(2)}–${ratio.high.toFixed(2)})  ${Math.round(requestsPerSecond).toLocaleString('en')}/s`;
  return [
    label,
    `<rect class="${kind}" x="${LABEL}" y="${y}" width="${(ratio.median * scale).toFixed(1)}" height="${BAR}" rx="2"/>`,
    `<line class="spread" x1="${low.toFixed(1)}" x2="${high.toFixed(1)}" y1="${middle}" y2="${middle}"/>`,
    `<text class="quiet" x="${WIDTH - NOTE + 12}" y="${y + 13}">${note}</text>`,
  ].join('\n');
}

const escapeXml = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
