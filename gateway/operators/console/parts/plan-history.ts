import type { HistoryAnswer, PlanChangeView } from '../../api/answers.ts';
import { viaInWords } from '../audit-words.ts';
import { html } from '../html.ts';
import { askForRollback } from '../plan-dialogs.ts';
import type { Polled } from '../polled.ts';
import { ActionButton } from './action-button.ts';
import { Changes } from './changes.ts';
import { Card, When } from './pieces.ts';
import { type Column, Table } from './table.ts';

const ACTIONS: Readonly<Record<string, string>> = { rollback: 'Rolled back', 'by hand': viaInWords('by hand') };

/** Lists the last changes of plans. The newest can be rolled back. */
export function PlanHistory({ history, changed }: { history: Polled<HistoryAnswer>; changed: () => Promise<void> }) {
  const rows = history.value?.history;
  const columns: readonly Column<PlanChangeView>[] = [
    { title: 'When', show: ({ at }) => html`<${When} at=${at} />` },
    { title: 'Who', show: ({ author }) => html`<span class="wordy">${author}</span>` },
    { title: 'What', show: What },
    { title: 'Why', show: ({ reason }) => html`<span class="wordy">${reason || '–'}</span>` },
    {
      title: 'Action',
      show: (change) =>
        change === rows?.[0] &&
        html`<${ActionButton} kind="small" onClick=${() => askForRollback(change, changed)}>Roll back<//>`,
    },
  ];
  return html`
    <${Card} title="Changes" id="history-title">
      <${Table} label="Changes" columns=${columns} rows=${rows} fault=${history.fault} idOf=${({ id }: PlanChangeView) => id}
        empty="No plan has been changed yet." />
    <//>
  `;
}

const What = ({ action, changes }: PlanChangeView) => html`
  ${ACTIONS[action] !== undefined && html`<span class="note">${ACTIONS[action]}</span>`}
  <${Changes} changes=${changes} />
`;
