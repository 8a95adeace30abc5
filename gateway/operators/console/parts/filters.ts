import { useEffect, useRef } from 'preact/hooks';
import { html } from '../html.ts';
import { toIso, toLocal } from '../key-dialogs.ts';
import { navigate } from '../router.ts';
import { searchText } from '../search-text.ts';

/** A part of the address that filters a list. Without a type it is a text. */
export interface FilterSpec {
  readonly name: string;
  readonly label: string;
  readonly type?: 'time' | 'date';
  readonly placeholder?: string;
  /** Suggested values. Others can be typed. */
  readonly suggestions?: readonly string[];
  /** The only possible values, as `[value, label]`. A choice takes effect at once. */
  readonly options?: readonly (readonly [string, string])[];
  /** The label of no choice; `Any` by default. */
  readonly otherwise?: string;
}

/** Reads the filters in an address. */
export function filtersIn<Name extends string>(
  names: readonly Name[],
  query: URLSearchParams,
): Partial<Record<Name, string>> {
  const filled = names.map((name) => [name, query.get(name) ?? ''] as const).filter(([, value]) => value !== '');
  return Object.fromEntries(filled) as Partial<Record<Name, string>>;
}

interface FiltersProps {
  readonly specs: readonly FilterSpec[];
  readonly query: URLSearchParams;
  /** Returns the address of the page with these filters. */
  addressOf(filters: Readonly<Record<string, string>>): string;
}

/** A form that keeps its filters in the address of the page. */
export function Filters({ specs, query, addressOf }: FiltersProps) {
  const form = useRef<HTMLFormElement>(null);
  const address = query.toString();
  // Fields are set when the address changes, not with each answer, so that text stays while it is typed.
  useEffect(() => {
    for (const spec of specs) {
      const field = form.current?.elements.namedItem(spec.name);
      if (field instanceof HTMLInputElement || field instanceof HTMLSelectElement)
        field.value = typedOf(spec, new URLSearchParams(address).get(spec.name) ?? '');
    }
  }, [address]);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const typed = new FormData(event.target as HTMLFormElement);
    const given = specs.map((spec) => [spec.name, filterOf(spec, String(typed.get(spec.name) ?? ''))] as const);
    navigate(addressOf(Object.fromEntries(given.filter(([, value]) => value !== ''))), 'replace');
  };
  const isTime = ({ type }: FilterSpec) => type !== undefined;
  return html`
    <form class="filters of-list" ref=${form} onSubmit=${submit}>
      ${specs.filter((spec) => !isTime(spec)).map(Labelled)}
      <div class="filters">
        ${specs.filter(isTime).map(Labelled)}
        <button type="submit">Filter</button>
        ${query.size > 0 && html`<a href=${addressOf({})}>Clear</a>`}
      </div>
    </form>
  `;
}

const Labelled = (spec: FilterSpec) => html`<label class="filter">${spec.label}${inputOf(spec)}</label>`;

function inputOf({ name, type, placeholder, suggestions, options, otherwise = 'Any' }: FilterSpec) {
  if (type !== undefined) return html`<input name=${name} type=${type === 'time' ? 'datetime-local' : type} />`;
  if (options !== undefined)
    return html`<select name=${name} onChange=${choose}>
      <option value="">${otherwise}</option>
      ${options.map(([value, text]) => html`<option value=${value}>${text}</option>`)}
    </select>`;
  const list = suggestions && `filter-${name}`;
  return html`
    <input name=${name} type="search" autocomplete="off" spellcheck=${false} maxlength="200" list=${list} placeholder=${placeholder} />
    ${suggestions && html`<datalist id=${list}>${suggestions.map((value) => html`<option value=${value} />`)}</datalist>`}
  `;
}

const choose = ({ target }: Event) => (target as HTMLSelectElement).form?.requestSubmit();

/** Formats a filter for its field. A time that cannot be read is left for the gateway to refuse. */
const typedOf = ({ type }: FilterSpec, value: string): string =>
  type === 'time' ? (Number.isNaN(Date.parse(value)) ? '' : toLocal(value)) : value;

const filterOf = ({ type }: FilterSpec, typed: string): string =>
  type === 'time' ? (toIso(typed) ?? '') : searchText(typed).text;
