import { callApi, Unreachable } from './api.js';
import { Chart, inDigits, SPAN_MS } from './chart.js';
import { setText } from './dom.js';

/** What is admitted, refused and banned a second, out of the running totals; and how the gateway stands. */

const OUTCOMES = ['admitted', 'refused', 'banned'];

const SHARED = 'No outage: every limit is exact.';
const LOCAL =
  'Redis is away. Decisions are local: this gateway goes on from what it last knew, and keys that it has not seen get 503.';
const AWAY = 'Redis is away. Keys, bans and plans cannot be read; what is shown of them is old.';

export class Traffic {
  /** Set by who reads them: nobody else notices while no client asks for anything. */
  isStoreAway = false;
  #samples = [];
  #last;
  #chart = new Chart();
  #state = document.querySelector('#state');
  #numbers = OUTCOMES.map((outcome) => document.querySelector(`#rates [data-outcome=${outcome}] dd`));

  /**
   * Asks once, and shows what is new since the last time.
   * @returns the plan table's `{ version, rejected, … }`; undefined where there was no answer
   */
  async refresh() {
    try {
      const { body } = await callApi('GET', '/traffic');
      this.#add(ratesBetween(this.#last, body.totals, body.since));
      this.#last = { totals: body.totals, since: body.since, at: performance.now() };
      if (body.mode === 'local') this.#tellState('local', LOCAL);
      else if (this.isStoreAway) this.#tellState('away', AWAY);
      else this.#tellState('shared', SHARED);
      return body.planTable;
    } catch (thrown) {
      this.#add(null);
      this.#last = undefined;
      const { message } = thrown;
      this.#tellState('silent', thrown instanceof Unreachable ? `${message} What is shown below is old.` : message);
      return undefined;
    }
  }

  #tellState(state, text) {
    this.#state.dataset.state = state;
    setText(this.#state, text);
  }

  #add(rates) {
    const at = performance.now();
    this.#samples = [...this.#samples.filter((sample) => sample.at > at - SPAN_MS), { at, rates }];
    for (const [index, outcome] of OUTCOMES.entries())
      setText(this.#numbers[index], rates === null ? '–' : inDigits(rates[outcome]));
    this.#chart.draw(this.#samples, OUTCOMES);
  }
}

/** Null for the first time, and after a restart of the gateway, which counts from 0; a total never falls otherwise. */
function ratesBetween(last, totals, since) {
  if (last === undefined || last.since !== since) return null;
  const seconds = (performance.now() - last.at) / 1_000;
  const rates = OUTCOMES.map((outcome) => [outcome, (totals[outcome] - last.totals[outcome]) / seconds]);
  return Object.fromEntries(rates);
}
