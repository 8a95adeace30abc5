import htm from 'htm';
import { type ComponentChildren, h, type VNode } from 'preact';
import { useEffect, useId, useRef } from 'preact/hooks';
import type { Tags } from '../../limiter/tags.ts';
import { includesRole, ROLE_WORDS, type Role } from '../../stores/words.ts';
import type { BanView, BucketView, KeyView } from '../api/answers.ts';
import { type Part, placeIn, searchText, tooSmallInWords } from '../clients.ts';
import { currentCaller, keptToken, refresh } from './api.ts';
import { addressOf } from './page-names.ts';
import { navigate, type Route } from './router.ts';
import { clock, exactTime, number, percent, relative, runningBan, toIso, toLocal, upperFirst } from './words.ts';

/** The building blocks of pages: markup, small parts, tables, messages, buttons for changes, filters and downloads. */

type Template = (strings: TemplateStringsArray, ...values: unknown[]) => VNode;

/** htm's types describe a CommonJS module; browsers get its ES module. */
const { bind } = htm as unknown as { bind(create: typeof h): Template };

/** Renders templates as markup. Values are set as text and properties, so that typed text never becomes markup. */
export const html: Template = bind.call(htm, h);

export type Content = ComponentChildren;

export const KeyLink = ({ id, name }: { id: string; name: string }) =>
  html`<a href=${addressOf('key', { id })}><span class="name">${name}</span></a><code class="id">${id}</code>`;

/** Shows the tags of a key. Each links to the keys that have it. */
export const TagChips = ({ tags }: { tags: Tags | undefined }) =>
  tags !== undefined &&
  html`<span class="tags">${Object.entries(tags).map(
    ([name, value]) =>
      html`<a class="tag" href=${addressOf('keys', { tag: `${name}=${value}` })}>${name}=${value}</a> `,
  )}</span>`;

export const State = ({ state }: { state: string }) =>
  html`<span class=${`badge ${state}`}>${upperFirst(state)}</span>`;

/** Shows the state of a key, with a note if it is banned or its limits are too low. */
export const StateOf = (key: KeyView) =>
  html`<${State} state=${key.state} /> ${
    key.bannedUntil === undefined
      ? key.tooSmall && html`<span class="note">${tooSmallInWords(key.waitSeconds)}</span>`
      : html`<span class="note">${runningBan(key)}</span>`
  }`;

/** Shows a ban in places that do not show the state of the key. */
export const BanNote = ({ ban }: { ban: BanView | undefined }) =>
  ban !== undefined && html`<span class="note">banned ${runningBan(ban)}</span>`;

/** Shows a point in time, with the exact time on hover, or the given text if there is none. */
export const When = ({ at, none }: { at: string | undefined; none?: string }) =>
  at === undefined
    ? html`<span class="note">${none}</span>`
    : html`<time datetime=${at} title=${exactTime(at)}>${clock(at)}</time> <span class="note">${relative(at)}</span>`;

interface CardProps {
  readonly title: string;
  readonly actions?: Content;
  readonly children?: Content;
}

export const Card = ({ title, actions, children }: CardProps) => html`
  <section class="card" aria-label=${title}>
    <div class="card-head"><h2>${title}</h2>${actions}</div>
    ${children}
  </section>
`;

/** A card with a table, which has the same title. */
export const TableCard = <T>({ title, actions, children, ...table }: Omit<TableProps<T>, 'label'> & CardProps) =>
  html`<${Card} title=${title} actions=${actions}><${Table} label=${title} ...${table} />${children}<//>`;

/** Shows pairs of a name and a fact. */
export const Facts = ({ of }: { of: readonly (readonly [name: Content, fact: Content])[] }) =>
  html`<dl class="facts">${of.map(([name, fact]) => html`<div><dt>${name}</dt><dd>${fact}</dd></div>`)}</dl>`;

/** The style of a mark, such as a bar or a legend entry. @param color a colour by its name in base.css */
export const markOf = (color: string) => ({ '--mark': `var(--${color})` });

/** Shows how much of a limit is used. */
export function Meter({ bucket, label }: { bucket: BucketView | undefined; label: string }) {
  if (bucket === undefined) return html`<span class="note">no limit</span>`;
  const { used, limit } = bucket;
  const share = used / limit;
  const color = share >= 1 ? 'banned' : share >= 0.8 ? 'refused' : 'admitted';
  return html`
    ${number(used)} / ${number(limit)}
    <span class="meter" role="meter" aria-valuemax=${limit} aria-valuenow=${used} aria-label=${`${label}: ${percent(used, limit)} used`}
      style=${{ ...markOf(color), '--used': `${share * 100}%` }}></span>
  `;
}

/**
 * Shows "Newest" and "Older". The browser's Back also leads to the previous page.
 * @param next where the list continues; undefined at its end
 */
export function Pager({ route: { page, query }, next }: { route: Route; next: Part['next'] }) {
  const { offset, after, ...filters } = Object.fromEntries(query);
  const isNewest = (after ?? offset ?? '0') === '0';
  const older = { ...filters, [placeIn(page)]: String(next) };
  const button = (name: string, isOff: boolean, to: FilterValues) =>
    html`<button type="button" disabled=${isOff} onClick=${() => navigate(addressOf(page, to))}>${name}</button>`;
  if (isNewest && next === undefined) return undefined;
  return html`<p class="bar">${button('Newest', isNewest, filters)}${button('Older', next === undefined, older)}</p>`;
}

export interface Column<T> {
  readonly title: string;
  /** Whether to align the column to the right, for numbers. */
  readonly isFigure?: boolean;
  show(row: T): Content;
}

const ofId = (row: unknown): string => (row as { readonly id: string }).id;

interface TableProps<T> {
  readonly label: string;
  readonly columns: readonly Column<T>[];
  /** Undefined until the first response. */
  readonly rows: readonly T[] | undefined;
  readonly fault: Error | undefined;
  /** Shown if there are no rows. */
  readonly empty: Content;
  /** By default the id of the row. */
  idOf?(row: T): string;
  /** If present, each row can be opened by a click on it, or by the button in its first cell. */
  readonly more?: { of(row: T): Content; isOpen(row: T): boolean; toggle(row: T): void };
}

/** A table that explains why it is empty. On a phone each row is a card. */
export function Table<T>({ label, columns, rows, fault, empty, idOf = ofId, more }: TableProps<T>) {
  const prefix = useId();
  const hasRows = rows !== undefined && rows.length > 0;
  return html`
    ${hasRows && html`<${Stale} fault=${fault} />`}
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
        : html`<${Missing} fault=${fault}>${rows && empty}<//>`
    }
  `;
}

function Row<T>({ row, columns, more, moreId }: Pick<TableProps<T>, 'columns' | 'more'> & { row: T; moreId: string }) {
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

const cellOf = <T>({ title, isFigure, show }: Column<T>, row: T) =>
  html`<td data-label=${title} class=${isFigure ? 'figure' : undefined}><div>${show(row)}</div></td>`;

/** A placeholder for content that cannot be shown yet, with the reason. */
export const Missing = ({ fault, children }: { fault: Error | undefined; children?: Content }) =>
  html`<p class="empty">${fault === undefined ? (children ?? 'Loading …') : fault.message}</p>`;

/** Warns that the data on the page is out of date. */
export const Stale = ({ fault }: { fault: Error | undefined }) =>
  fault !== undefined && html`<p class="stale" role="status">Not up to date: ${fault.message}</p>`;

const SHOWN_MS = 6_000;
const toast = document.querySelector('.toast') as HTMLElement;
let vanishing: ReturnType<typeof setTimeout> | undefined;

/** Shows a message about an action, which disappears by itself. After logout nothing is shown. */
export function notify(text: string): void {
  if (keptToken() === null) return;
  toast.textContent = text;
  clearTimeout(vanishing);
  vanishing = setTimeout(clearMessage, SHOWN_MS);
}

export function clearMessage(): void {
  toast.textContent = '';
}

interface ActionButtonProps {
  readonly kind?: string;
  /** The lowest role that may use the button. */
  readonly needs?: Role;
  /** What the button changes, for screen readers, if that is visible only from its row. */
  readonly of?: string;
  onClick(): unknown;
  readonly children: Content;
}

/**
 * A button that changes something. For users without the required role, and until the role is known, it only explains
 * why it does nothing. The gateway enforces permissions itself.
 */
export function ActionButton({ kind, needs = 'operator', of, onClick, children }: ActionButtonProps) {
  const caller = currentCaller();
  const content = html`${children}${of !== undefined && html`<span class="unseen"> ${of}</span>`}`;
  if (caller !== undefined && includesRole(caller.role, needs))
    return html`<button type="button" class=${kind} onClick=${onClick}>${content}</button>`;
  const why =
    caller === undefined
      ? 'The role of your token is not known yet. Try again in a moment.'
      : `This needs the ${roleInWords(needs)} role. Your token has the ${roleInWords(caller.role)} role.`;
  const explain = () => {
    notify(why);
    if (caller === undefined) void refresh();
  };
  return html`<button type="button" class=${kind} aria-disabled="true" title=${why} onClick=${explain}>${content}</button>`;
}

export const roleInWords = (role: string): string => ROLE_WORDS[role as Role]?.split(':')[0] ?? role;

/** A field of a form. */
export interface InputSpec {
  readonly name: string;
  readonly label: string;
  readonly type?: 'search' | 'number' | 'datetime-local' | 'date';
  readonly maxlength?: number;
  readonly placeholder?: string;
  /** Suggested values. Others can be typed. */
  readonly suggestions?: readonly string[];
  /** The only possible values, as `[value, label]`. */
  readonly options?: readonly (readonly [string, string])[];
}

/** @param value the value at first and after a reset */
export function Input({ field, value, ...attributes }: { field: InputSpec; value: string } & object) {
  const { name, type = 'text', maxlength, placeholder, suggestions, options } = field;
  if (options !== undefined)
    return html`<select name=${name} ...${attributes}>
      ${options.map(([one, text]) => html`<option value=${one} defaultSelected=${one === value}>${text}</option>`)}
    </select>`;
  const kind = type === 'number' ? { type: 'text', inputMode: 'numeric' } : { type };
  const list = suggestions && `suggestions-${name}`;
  return html`
    <input name=${name} ...${kind} ...${attributes} autocomplete="off" maxlength=${maxlength} list=${list} placeholder=${placeholder} defaultValue=${value} />
    ${suggestions && html`<datalist id=${list}>${suggestions.map((one) => html`<option value=${one} />`)}</datalist>`}
  `;
}

/** A filter of a list, kept in the URL of the page. An option applies at once. */
export interface FilterSpec extends InputSpec {
  /** The label of the empty choice; `Any` by default. */
  readonly otherwise?: string;
}

/** Values of filters by name. The names are those of the admin API. */
export type FilterValues = Readonly<Record<string, string>>;

/** Reads the filters in the query of a URL. */
export const filtersIn = (specs: readonly FilterSpec[], query: URLSearchParams): FilterValues =>
  Object.fromEntries(specs.map(({ name }) => [name, query.get(name) ?? '']).filter(([, value]) => value !== ''));

/** A form that keeps its filters in the URL of the page. */
export function Filters({ specs, route: { page, query } }: { specs: readonly FilterSpec[]; route: Route }) {
  const form = useRef<HTMLFormElement>(null);
  // Fields are set only when the URL changes. Setting them with each response would overwrite text being typed.
  useEffect(() => form.current?.reset(), [query.toString()]);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const typed = new FormData(event.target as HTMLFormElement);
    const given = specs.map(
      (spec) => [spec.name, filterOf(spec, String(typed.get(spec.name) ?? ''), query.get(spec.name) ?? '')] as const,
    );
    navigate(addressOf(page, Object.fromEntries(given.filter(([, value]) => value !== ''))), 'replace');
  };
  const isTime = ({ type }: FilterSpec) => type !== undefined;
  const labelled = (spec: FilterSpec) => {
    const { label, options, otherwise = 'Any' } = spec;
    const field = { type: 'search', maxlength: 200, ...spec, options: options && [['', otherwise], ...options] };
    return html`<label class="filter note">${label}
      <${Input} field=${field} value=${typedOf(spec, query.get(spec.name) ?? '')} step="1" spellcheck=${false} onChange=${options && choose} />
    </label>`;
  };
  return html`
    <form class="filters" ref=${form} onSubmit=${submit}>
      ${specs.filter((spec) => !isTime(spec)).map(labelled)}
      <div class="bar">
        ${specs.filter(isTime).map(labelled)}
        <button type="submit">Filter</button>
        ${query.size > 0 && html`<a href=${addressOf(page)}>Clear</a>`}
      </div>
    </form>
  `;
}

const choose = ({ target }: Event) => (target as HTMLSelectElement).form?.requestSubmit();

/** Formats a filter for its field. An invalid time leaves the field empty; the gateway rejects the one in the URL. */
const typedOf = ({ type }: FilterSpec, value: string): string =>
  type === 'datetime-local' ? (Number.isNaN(Date.parse(value)) ? '' : toLocal(value)) : value;

/** A time that was not edited is kept, because its field shows neither milliseconds nor the offset from UTC. */
function filterOf(spec: FilterSpec, typed: string, before: string): string {
  if (spec.type !== 'datetime-local') return searchText(typed).text;
  return Date.parse(typed) === Date.parse(typedOf(spec, before)) ? before : (toIso(typed) ?? '');
}

/** Saves a CSV file. The admin API requires a token, which a plain link would not send. */
export function download(name: string, csv: string): void {
  const url = URL.createObjectURL(new Blob([csv], { type: 'text/csv;charset=utf-8' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  // The browser may still be reading the blob.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
