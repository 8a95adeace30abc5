import { ApiError } from '../api.ts';
import { type Content, html } from '../html.ts';

export interface Column<T> {
  readonly title: string;
  /** Numbers are aligned to the right. */
  readonly isFigure?: boolean;
  show(row: T): Content;
}

interface TableProps<T> {
  readonly label: string;
  readonly columns: readonly Column<T>[];
  /** Undefined until the first answer. */
  readonly rows: readonly T[] | undefined;
  readonly fault: Error | undefined;
  /** Said when there are no rows. */
  readonly empty: Content;
  idOf(row: T): string;
  isMarked?(row: T): boolean;
}

/** A table that says why it is empty. On a phone each row is a card. */
export function Table<T>({ label, columns, rows, fault, empty, idOf, isMarked }: TableProps<T>) {
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
                (row) =>
                  html`<tr key=${idOf(row)} class=${isMarked?.(row) ? 'marked' : undefined}>
                    ${columns.map((column, at) => cellOf(column, row, at === 0))}
                  </tr>`,
              )}
            </tbody>
          </table>`
        : html`<p class="empty">${fault === undefined ? (rows === undefined ? 'Asking the gateway …' : empty) : inWords(fault)}</p>`
    }
  `;
}

function cellOf<T>({ title, isFigure, show }: Column<T>, row: T, isFirst: boolean) {
  const content = show(row);
  if (isFirst) return html`<th scope="row">${content}</th>`;
  return html`<td data-label=${title} class=${isFigure ? 'figure' : undefined}><div>${content}</div></td>`;
}

/** Why there is nothing to show. */
export function inWords(fault: Error): string {
  if (fault instanceof ApiError && fault.status === 503) return 'Redis is away, so this cannot be read now.';
  return fault.message;
}
