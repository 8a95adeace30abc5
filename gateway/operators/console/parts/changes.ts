import type { ActivityView } from '../../api/answers.ts';
import { isTime, recordedFieldInWords, recordedValueInWords } from '../audit-words.ts';
import { html } from '../html.ts';
import { exactTime } from '../words.ts';

type Change = ActivityView['changes'][number];

interface ChangesProps {
  readonly changes: readonly Change[];
  /** Whether the fields belong to something new, so that they had no value before. */
  readonly areNew?: boolean;
}

/** Shows what a change did, field by field, from the old value to the new one. */
export const Changes = ({ changes, areNew = false }: ChangesProps) =>
  changes.length > 0 &&
  html`<ul class="plain changes">
    ${changes.map((change) => html`<li class="wordy">${recordedFieldInWords(change.field)}: ${valuesOf(change, areNew)}</li>`)}
  </ul>`;

/** The id of a changed secret only identifies it. */
const valuesOf = ({ field, from, to }: Change, isNew: boolean) =>
  from === undefined && (isNew || field === 'secret')
    ? html`<ins>${shown(field, to)}</ins>`
    : html`<del>${shown(field, from)}</del> → <ins>${shown(field, to)}</ins>`;

const shown = (field: string, value: string | undefined) =>
  isTime(value) ? html`<time datetime=${value}>${exactTime(value)}</time>` : recordedValueInWords(field, value);
