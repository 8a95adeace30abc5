import { ApiError, callApi } from './api.js';
import { ask, isAsking } from './dialog.js';
import { element, makeTable, setText, tell } from './dom.js';
import { COLUMNS, PlanForm } from './plan-form.js';
import { PLANS, toValue } from './plan-rules.js';
import { askedOf, differences, who } from './who.js';

/** The plan table, edited in place. */

export class Plans {
  /** What the gateway said last, and the version to send along with a change of it. */
  #seen = { table: {}, etag: undefined };
  #forms;
  #rejected = [];
  #changed;

  /** @param changed is called after a change of ours */
  constructor(changed) {
    this.#changed = changed;
    const body = makeTable(document.querySelector('#plans'), COLUMNS);
    this.#forms = PLANS.map((plan) => new PlanForm(plan, (form) => this.#review(form)));
    body.append(...this.#forms.map(({ row }) => row));
  }

  /** The version of the table that is shown, as the gateway writes it without quotes. */
  get version() {
    return this.#seen.etag?.replaceAll('"', '');
  }

  /** Asks for the table. What somebody is about to decide on stays as it is shown. */
  async refresh() {
    const { body, etag } = await callApi('GET', '/plans');
    if (!isAsking()) this.#adopt({ table: body, etag });
  }

  /** @param rejected stored values that are not in force: `{ field, value, kept }` */
  showRejected(rejected) {
    this.#rejected = rejected;
    for (const form of this.#forms) form.showRejected(rejected);
    const note = document.querySelector('#rejected');
    note.classList.toggle('fault', rejected.length > 0);
    setText(note, rejected.length === 0 ? 'Every stored value is in force.' : rejected.map(inWords).join(' '));
  }

  #adopt(seen) {
    this.#seen = seen;
    for (const form of this.#forms) form.adopt(seen.table[form.plan]);
    this.showRejected(this.#rejected);
  }

  /** Shows the difference, asks who and why, and makes the change only if the table still is the one that was shown. */
  #review(form) {
    const difference = element('div', {}, differences(form.changes));
    const fields = who();
    ask({
      title: `Change ${form.plan}`,
      content: [difference],
      fields,
      confirm: 'Apply',
      act: async (values) => {
        const { author, reason } = askedOf(values);
        const made = form.changes;
        await this.#apply(form, { author, reason }).catch(async (thrown) => {
          if (!(thrown instanceof ApiError && thrown.code === 'conflict')) throw thrown;
          await this.#lookAgain(thrown, form, difference);
        });
        form.discard();
        await this.#changed();
        tell(`${form.plan} is changed: ${made.map(({ field, from, to }) => `${field} ${from} → ${to}`).join(', ')}.`);
      },
    });
  }

  async #apply({ plan, changes }, about) {
    const fields = Object.fromEntries(changes.map(({ field, to }) => [field, toValue(field, to)]));
    const { body, etag } = await callApi('PATCH', `/plans/${plan}`, {
      body: { ...fields, ...about },
      ifMatch: this.#seen.etag,
    });
    this.#adopt({ table: { ...this.#seen.table, [plan]: body }, etag });
  }

  /** Somebody else was quicker: shows what is in force now, and what would be changed of it. */
  async #lookAgain(conflict, form, difference) {
    const { body, etag } = await callApi('GET', '/plans');
    this.#adopt({ table: body, etag });
    difference.replaceChildren(differences(form.changes));
    throw conflict;
  }
}

/** A value that is no limit, and what stays in its place. */
const inWords = ({ field, value, kept }) =>
  `${field}: ${value === undefined ? 'is gone' : `“${value}” is rejected`}${kept === undefined ? '' : `, ${kept} stays in force`}.`;
