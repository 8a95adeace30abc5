import { type Content, html } from '../html.ts';

/** A labelled field with a hint, or with an error in place of the hint. */
export interface FieldSpec {
  readonly name: string;
  readonly label: string;
  readonly hint?: Content;
  readonly value?: string;
  /** `boxes` allows any number of the options. A field with options and another type is a choice of one. */
  readonly type?: 'text' | 'datetime-local' | 'number' | 'boxes';
  /** Each option is `[value, label]`. */
  readonly options?: readonly (readonly [string, string])[];
  readonly maxlength?: number;
  /** Called with each input. */
  onInput?(value: string): void;
}

export function Field({ field, fault }: { field: FieldSpec; fault?: string | undefined }) {
  if (field.type === 'boxes') return html`<${Boxes} field=${field} fault=${fault} />`;
  const { name, label, hint, value = '', type = 'text', options, maxlength, onInput } = field;
  const id = `field-${name}`;
  const common = {
    id,
    name,
    'aria-describedby': `${id}-note`,
    'aria-invalid': fault === undefined ? undefined : 'true',
    onInput: (event: Event) => onInput?.((event.target as HTMLInputElement).value),
  };
  const numeric = type === 'number' ? { type: 'text', inputMode: 'numeric' } : { type };
  const input = options
    ? html`<select ...${common}>
        ${options.map(([key, text]) => html`<option value=${key} selected=${key === value}>${text}</option>`)}
      </select>`
    : html`<input ...${common} ...${numeric} autocomplete="off" maxlength=${maxlength} defaultValue=${value} />`;
  return html`
    <div class="field">
      <label for=${id}>${label}</label>
      ${input}
      <${Note} id=${id} hint=${hint} fault=${fault} />
    </div>
  `;
}

function Boxes({ field, fault }: { field: FieldSpec; fault: string | undefined }) {
  const { name, label, hint, value = '', options = [] } = field;
  const id = `field-${name}`;
  const chosen = value.split(',');
  return html`
    <fieldset class="field" aria-describedby=${`${id}-note`}>
      <legend>${label}</legend>
      <div class="bar">
        ${options.map(
          ([key, text]) =>
            html`<label class="box"
              ><input type="checkbox" name=${name} value=${key} defaultChecked=${chosen.includes(key)} /> ${text}</label
            >`,
        )}
      </div>
      <${Note} id=${id} hint=${hint} fault=${fault} />
    </fieldset>
  `;
}

const Note = ({ id, hint, fault }: { id: string; hint: Content; fault: string | undefined }) =>
  html`<span id=${`${id}-note`} class=${fault === undefined ? 'note' : 'note fault'}>${fault ?? hint}</span>`;
