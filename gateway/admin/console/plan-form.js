import { markFault } from './dialog.js';
import { button, element, makeRow } from './dom.js';
import { faultOfValue, PLAN_FIELDS } from './plan-rules.js';

/** One plan as a row of fields: what is in force, what somebody types instead, and what is wrong with it. */

export const COLUMNS = ['Plan', ...PLAN_FIELDS.map(({ label }) => label), 'Change'];

export class PlanForm {
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
    const cells = PLAN_FIELDS.map((field) => this.#makeCell(form.id, field));
    this.row = makeRow(COLUMNS, [form, ...cells, element('span', { class: 'bar' }, this.#review, this.#discard)]);
  }

  #unseen() {
    return element('span', { class: 'unseen' }, ` ${this.plan}`);
  }

  #makeCell(form, { name, label, options, otherwise = '' }) {
    const note = element('span', { id: `${form}-${name}-note`, class: 'note' });
    const described = {
      id: `${form}-${name}`,
      form,
      'aria-label': `${this.plan}: ${label}`,
      'aria-describedby': note.id,
      input: () => this.#typed(),
    };
    const input = options
      ? element('select', described, ...options.map((option) => element('option', {}, option)))
      : element('input', { ...described, inputmode: 'numeric', autocomplete: 'off', maxlength: '20' });
    this.#cells.set(name, { name, input, note, otherwise, base: input.value, rejected: undefined });
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
      const now = String(limits[cell.name] ?? cell.otherwise);
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

const faultOf = (cell) => (isDirty(cell) ? faultOfValue(cell.name, cell.input.value.trim()) : undefined);

/** Below a field: what is wrong with it, else what is in force while something else is typed. */
function note(cell) {
  const stored = cell.rejected && `“${cell.rejected.value ?? ''}” is rejected`;
  markFault(cell.input, cell.note, faultOf(cell) ?? stored, isDirty(cell) ? `now ${cell.base}` : '');
}
