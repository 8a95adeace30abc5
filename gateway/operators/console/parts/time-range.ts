import { html } from '../html.ts';
import { STEP_SECONDS, type Step } from './chart-options.ts';

/** The ranges of a chart, in full steps and in words. The current step, which is not over, is shown too. */
const RANGES = {
  minute: [
    [15, '15 minutes'],
    [60, '1 hour'],
  ],
  day: [
    [7, '7 days'],
    [35, '35 days'],
  ],
} as const;

/** The longest range of each step, which is all that the gateway keeps. */
export const LONGEST = { minute: 60, day: 35 } as const;

/** `The last 15 minutes`, `The last hour`. */
export const lastInWords = (step: Step, length: number): string =>
  `The last ${(RANGES[step].find(([one]) => one === length)?.[1] ?? '').replace(/^1 /, '')}`;

interface TimeRangeProps {
  readonly step: Step;
  readonly length: number;
  choose(length: number): void;
}

/** Chooses a range. */
export const TimeRange = ({ step, length, choose }: TimeRangeProps) => html`
  <div class="bar" role="group" aria-label="Time range">
    ${RANGES[step].map(
      ([one, words]) =>
        html`<button type="button" class="small" aria-pressed=${one === length} onClick=${() => choose(one)}>${words}</button>`,
    )}
  </div>
`;

/** Returns the Unix times in seconds of some full steps, and of the one that contains `now`. */
export function timesUpTo(now: number, step: Step, length: number): number[] {
  const seconds = STEP_SECONDS[step];
  const last = Math.floor(now / seconds) * seconds;
  return Array.from({ length: length + 1 }, (_, at) => last - (length - at) * seconds);
}
