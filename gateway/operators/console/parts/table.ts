import { useId } from 'preact/hooks';
import { ApiError } from '../api.ts';
import { type Content, html } from '../html.ts';

export interface Column<T> {
  readonly title: string;
  /** Whether to align the column to the right, for numbers. */
  readonly isFigure?: boolean;
  show(row: T): Content;
}

interface TableProps<T> {
  readonly label: string;
  readonly columns: readonly Column<T>[];
  /** Undefined until the first answer. */
  readonly rows: readonly T[] | undefined;
  readonly fault: Error | undefined;
  /** Shown if there are no rows. */
  readonly empty: Content;
  idOf(row: T): string;
  /** If present, each row can be opened by a click on it, or by the button in its first cell. */
  readonly more?: More<T>;
}

interface More<T> {
  of(row: T): Content;
  isOpen(row: T): boolean;
  toggle(row: T): void;
}

/** A table that explains why it is empty. On a phone each row is a card. */
export function Table<T>({ label, columns, rows, fault, empty, idOf, more }: TableProps<T>) {
  const prefix = useId();
  const hasRows = rows !== undefined && rows.length > 0;
  return html`
    ${hasRows && fault !== undefined && html`<p class="stale" role="status">Not up to date: ${inWords(fault)}</p>`}
    ${
      hasRows
        ? html`<table aria-label=${label}>
            <thead>
              <tr>
                ${columns.map(({ title, isFigure }) => html`<th scope="col" class=${isFigure ? 'figure' : undefined}>${title}</th>`)}
              </tr>
            </thead>
            <tbody>
              ${rows.map(
                (row, index) =>
                  html`<${Row} key=${idOf(row)} row=${row} columns=${columns} more=${more} moreId=${`${prefix}-${index}`} />`,
              )}
            </tbody>
          </table>`
        : html`<p class="empty">${fault === undefined ? (rows === undefined ? 'Loading …' : empty) : inWords(fault)}</p>`
    }
  `;
}

interface RowProps<T> {
  readonly row: T;
  readonly columns: readonly Column<T>[];
  readonly more: More<T> | undefined;
  readonly moreId: string;
}

function Row<T>({ row, columns, more, moreId }: RowProps<T>) {
  const cells = (first: Content, attributes = {}) => html`
    <tr ...${attributes}>
      <th scope="row">${first}</th>
      ${columns.slice(1).map((column) => cellOf(column, row))}
    </tr>
  `;
  const first = columns[0]?.show(row);
  if (more === undefined) return cells(first);
  const isOpen = more.isOpen(row);
  const toggle = html`
    <button type="button" class="toggle" aria-expanded=${String(isOpen)} aria-controls=${isOpen ? moreId : undefined} onClick=${() => more.toggle(row)}>${first}</button>
  `;
  const click = (event: MouseEvent) => {
    const isOfAnother = event.target instanceof Element && event.target.closest('a, button') !== null;
    if (!isOfAnother && getSelection()?.isCollapsed !== false) more.toggle(row);
  };
  return html`
    ${cells(toggle, { class: isOpen ? 'opens open' : 'opens', onClick: click })}
    ${isOpen && html`<tr class="more"><td id=${moreId} colspan=${columns.length}>${more.of(row)}</td></tr>`}
  `;
}

function cellOf<T>({ title, isFigure, show }: Column<T>, row: T) {
  const content = show(row);
  return html`<td data-label=${title} class=${isFigure ? 'figure' : undefined}><div>${content}</div></td>`;
}

/** Explains why there is nothing to show. */
export function inWords(fault: Error): string {
  if (fault instanceof ApiError && fault.status === 503) return 'Redis is away, so this cannot be read at the moment.';
  return fault.message;
}
