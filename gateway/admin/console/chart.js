import { setText } from './dom.js';

/** The last two minutes as three lines, and the same in words. */

export const SPAN_MS = 120_000;
const [WIDTH, HEIGHT] = [600, 150];
/** Room for the width of a line at the top and at the bottom. */
const EDGE = 2;
const LEAST_TOP = 5;

export class Chart {
  #svg = document.querySelector('#chart');
  #top = document.querySelector('#chart-top');
  #caption = document.querySelector('#chart-text');

  /** @param samples the oldest first, each with its time `at` in ms and rates a second by outcome; null where none was had */
  draw(samples, outcomes) {
    const now = samples.at(-1)?.at ?? 0;
    const rates = samples.flatMap(({ rates }) => (rates === null ? [] : Object.values(rates)));
    const top = roundUp(Math.max(LEAST_TOP, ...rates));
    for (const outcome of outcomes)
      this.#svg.querySelector(`.${outcome}`).setAttribute('d', pathOf(samples, outcome, now, top));
    setText(this.#top, `top ${top} a second`);
    setText(this.#caption, inWords(samples, outcomes));
  }
}

/** Where nothing was had, the line is broken. */
function pathOf(samples, outcome, now, top) {
  let pen = 'M';
  const steps = samples.map(({ at, rates }) => {
    if (rates === null) {
      pen = 'M';
      return '';
    }
    const x = WIDTH - ((now - at) / SPAN_MS) * WIDTH;
    const y = HEIGHT - EDGE - (rates[outcome] / top) * (HEIGHT - 2 * EDGE);
    const step = `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = 'L';
    return step;
  });
  return steps.join('');
}

/** 1, 2 or 5 times a power of ten. */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ([1, 2, 5].find((step) => step * power >= value) ?? 10);
}

/** A rate, always with one decimal so that it is as wide the next second. */
export const inDigits = (rate) => rate.toFixed(1);

function inWords(samples, outcomes) {
  const known = samples.filter(({ rates }) => rates !== null);
  if (known.length === 0) return 'Nothing has been counted yet.';
  const { rates } = samples.at(-1);
  const now = rates && outcomes.map((outcome) => `${inDigits(rates[outcome])} ${outcome}`).join(', ');
  const most = outcomes.map((outcome) => inDigits(Math.max(...known.map(({ rates }) => rates[outcome])))).join(', ');
  return `A second, now: ${now ?? 'not known'}. The most in these two minutes: ${most}.`;
}
