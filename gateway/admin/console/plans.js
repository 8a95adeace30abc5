import { ApiError, callApi } from './api.js';
import { ask, isAsking, markFault } from './dialog.js';
import { button, element, makeRow, makeTable, setText, tell } from './dom.js';
import { faultOfLimit, PLAN_FIELDS, PLANS } from './plan-rules.js';
import { askedOf, differences, who } from './who.js';

/** The plan table, edited in place. */

const COLUMNS = ['Plan', ...PLAN_FIELDS.map(({ label }) => label), 'Change'];

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
    const fields = Object.fromEntries(changes.map(({ field, to }) => [field, Number(to)]));
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

/** One plan's row. */
class PlanForm {
  #cells = new Map();
  #review;
  #discard;

  constructor(plan, review) {
    this.plan = plan;
    const form = element('form', { id: `plan-${plan}`, novalidate: true }, plan);
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (this.#isGood()) review(this);
    });
    this.#review = element('button', { form: form.id }, 'Review …', this.#unseen());
    this.#discard = button('Discard', () => this.discard());
    this.#discard.append(this.#unseen());
    const cells = PLAN_FIELDS.map(({ name, label }) => this.#makeCell(form.id, name, label));
    this.row = makeRow(COLUMNS, [form, ...cells, element('span', { class: 'bar' }, this.#review, this.#discard)]);
  }

  #unseen() {
    return element('span', { class: 'unseen' }, ` ${this.plan}`);
  }

  #makeCell(form, name, label) {
    const note = element('span', { id: `${form}-${name}-note`, class: 'note' });
    const input = element('input', {
      id: `${form}-${name}`,
      form,
      'aria-label': `${this.plan}: ${label}`,
      'aria-describedby': note.id,
      inputmode: 'numeric',
      autocomplete: 'off',
      maxlength: '20',
      input: () => this.#typed(),
    });
    this.#cells.set(name, { name, input, note, base: '', rejected: undefined });
    return element('span', { class: 'cell' }, input, note);
  }

  /** What was typed that differs from what is in force, as the history tells changes. */
  get changes() {
    return [...this.#cells.values()].filter(isDirty).map(({ name, input, base }) => ({
      field: name,
      from: base,
      to: input.value.trim(),
    }));
  }

  /** Takes what is in force now; what somebody is typing stays. */
  adopt(limits) {
    for (const cell of this.#cells.values()) {
      const now = String(limits[cell.name] ?? '');
      cell.input.parentElement.classList.toggle('none', now === '');
      if (!isDirty(cell)) cell.input.value = now;
      cell.base = now;
    }
    this.#typed();
  }

  discard() {
    for (const cell of this.#cells.values()) cell.input.value = cell.base;
    this.#typed();
  }

  showRejected(rejected) {
    for (const cell of this.#cells.values())
      cell.rejected = rejected.find(({ field }) => field === `${this.plan}.${cell.name}`);
    this.#typed();
  }

  #typed() {
    for (const cell of this.#cells.values()) note(cell);
    const isClean = this.changes.length === 0;
    // Not disabled, which would take the keyboard away from them.
    for (const one of [this.#review, this.#discard]) one.setAttribute('aria-disabled', String(isClean));
  }

  #isGood() {
    const bad = [...this.#cells.values()].find((cell) => faultOf(cell) !== undefined);
    bad?.input.focus();
    return bad === undefined && this.changes.length > 0;
  }
}

const isDirty = ({ input, base }) => input.value.trim() !== base;

const faultOf = (cell) => (isDirty(cell) ? faultOfLimit(cell.name, cell.input.value.trim()) : undefined);

/** Below a field: what is wrong with it, else what is in force while something else is typed. */
function note(cell) {
  const stored = cell.rejected && `“${cell.rejected.value ?? ''}” is rejected`;
  markFault(cell.input, cell.note, faultOf(cell) ?? stored, isDirty(cell) ? `now ${cell.base}` : '');
}
