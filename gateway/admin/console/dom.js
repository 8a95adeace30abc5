/** Making and changing elements. What the gateway says goes into the page as text and never as HTML. */

/**
 * An element with attributes (true sets an empty one, false and undefined none), listeners (functions, named by event), and
 * children, where strings are text.
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') made.addEventListener(name, value);
    else if (value !== undefined && value !== false) made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children);
  return made;
}

export const button = (label, click, attributes = {}) =>
  element('button', { type: 'button', click, ...attributes }, label);

/** A button in a row: what it acts on is said to those who hear the page, and seen from the row by those who see it. */
export const rowButton = (label, about, click) => {
  const subject = element('span', { class: 'unseen' }, ` ${about}`);
  const made = button(label, click);
  made.append(subject);
  return made;
};

/** Sets a text only where it differs: what is selected, or being read out, stays alone otherwise. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Gives a table its head. The roles outlive the style sheet, which shows rows as cards on a telephone. */
export function makeTable(table, columns) {
  const heads = columns.map((column) => element('th', { scope: 'col', role: 'columnheader' }, column));
  const body = element('tbody', { role: 'rowgroup' });
  table.setAttribute('role', 'table');
  table.replaceChildren(element('thead', { role: 'rowgroup' }, element('tr', { role: 'row' }, ...heads)), body);
  return body;
}

/** A row whose first cell names it. */
export function makeRow(columns, cells) {
  const made = cells.map((cell, at) =>
    at === 0
      ? element('th', { scope: 'row', role: 'rowheader' }, cell)
      : element('td', { role: 'cell', 'data-label': columns[at] }, cell),
  );
  return element('tr', { role: 'row' }, ...made);
}

/** A single row that says why there is none. */
const emptyRow = (columns, text) =>
  element('tr', { role: 'row', class: 'empty' }, element('td', { role: 'cell', colspan: String(columns) }, text));

/** Who has another name has another row: its buttons say whom they are about. */
const keyOf = ({ id, name = '' }) => `${id} ${name}`;

/**
 * Shows items as rows. The row of an item that stays is kept and only updated, and with it where the keyboard is.
 * @param make makes an item's row: `{ row, update(item) }`
 */
export class Rows {
  #shown = new Map();
  #body;
  #columns;
  #make;

  constructor(table, columns, make) {
    this.#body = makeTable(table, columns);
    this.#columns = columns.length;
    this.#make = make;
  }

  /** @param empty what is said where there are none */
  show(items, empty) {
    const kept = new Map(items.map((item) => [keyOf(item), this.#shown.get(keyOf(item)) ?? this.#make(item)]));
    this.#shown = kept;
    for (const item of items) kept.get(keyOf(item)).update(item);
    const rows = items.length > 0 ? [...kept.values()].map(({ row }) => row) : [emptyRow(this.#columns, empty)];
    this.#place(rows);
  }

  /** Rows that stay where they are are not touched. */
  #place(rows) {
    for (const old of [...this.#body.children]) if (!rows.includes(old)) old.remove();
    for (const [at, row] of rows.entries())
      if (this.#body.children[at] !== row) this.#body.insertBefore(row, this.#body.children[at] ?? null);
  }
}

/** A time of the gateway in the reader's zone, always as wide. */
export function time(iso) {
  // Sweden writes dates as ISO 8601 does.
  const text = iso === undefined ? '–' : new Date(iso).toLocaleString('sv-SE');
  return element('time', { datetime: iso, title: iso }, text);
}

const told = document.querySelector('#told');

/** Says what came of something, on the page and to those who hear it. */
export function tell(text) {
  // The same text twice would be said once.
  told.textContent = '';
  setTimeout(() => setText(told, text), 50);
}
