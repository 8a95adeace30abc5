import type { ActivityView } from '../../api/answers.ts';
import { type EntriesQuery, readEntries } from '../audit-log.ts';
import { actionInWords, viaInWords } from '../audit-words.ts';
import { type Content, html } from '../html.ts';
import { usePolled } from '../polled.ts';
import { addressOf, addressOfAuditLog } from '../router.ts';
import { planInWords } from '../words.ts';
import { Changes } from './changes.ts';
import { Card, KeyLink, When } from './pieces.ts';
import { type Column, Table } from './table.ts';

const EVERY_MS = 5_000;

const columnsOf = (isOfOneTarget: boolean): readonly Column<ActivityView>[] => [
  { title: 'When', show: ({ at }) => html`<${When} at=${at} />` },
  { title: 'Who', show: ({ actor }) => html`<span class="actor">${actor}</span>` },
  {
    title: 'What',
    show: (entry) => html`${actionInWords(entry.action)} ${!isOfOneTarget && html`<${Target} of=${entry} />`}`,
  },
  {
    title: 'Difference',
    show: ({ action, changes }) => html`<${Changes} changes=${changes} areNew=${!action.endsWith('.change')} />`,
  },
  { title: 'Why', show: ({ reason }) => html`<span class="reason wordy">${reason || '–'}</span>` },
  { title: 'Via', show: ({ via }) => viaInWords(via) },
];

const COLUMNS = columnsOf(false);
const COLUMNS_OF_ONE_TARGET = columnsOf(true);

interface AuditListProps extends EntriesQuery {
  /** Whether the page already names the target. */
  readonly isOfOneTarget?: boolean;
  readonly empty: string;
  /** A new value reloads the list. */
  readonly version?: string | undefined;
  /** What follows the table. @param next continues the list */
  below?(next: string | undefined): Content;
}

/** Lists entries of the audit log: who did what, when, why and how. */
export function AuditList({ isOfOneTarget = false, empty, below, version, ...query }: AuditListProps) {
  const { value, fault } = usePolled(`audit ${JSON.stringify(query)}`, EVERY_MS, () => readEntries(query), version);
  return html`
    <${Table} label="Audit log" columns=${isOfOneTarget ? COLUMNS_OF_ONE_TARGET : COLUMNS} rows=${value?.activity} fault=${fault}
      idOf=${({ id }: ActivityView) => id} empty=${empty} />
    ${below?.(value?.next)}
  `;
}

/** The number of entries on the page of their target. */
const FEW = 5;

/** Shows the last entries that the filters select, with a link to all of them. */
export function AuditCard({
  filters,
  isOfOneTarget,
  version,
}: Pick<AuditListProps, 'filters' | 'isOfOneTarget' | 'version'>) {
  const all = html`<a href=${addressOfAuditLog(filters)}>All entries</a>`;
  return html`
    <${Card} title="Audit log" id="audit-title" actions=${all}>
      <${AuditList} filters=${filters} limit=${FEW} version=${version} isOfOneTarget=${isOfOneTarget} empty="The audit log has no entry about this." />
    <//>
  `;
}

const KEY_ID = /^[0-9A-Za-z]{12}$/;

function Target({ of: { action, target, targetName } }: { of: ActivityView }) {
  if (action.startsWith('plan.'))
    return html`<span class="target"><a href=${addressOf('plans')}>${planInWords(target)}</a></span>`;
  const [id = ''] = target.split('/');
  if (action.startsWith('token.'))
    return html`<span class="target"><a class="wordy" href=${addressOf('access')}>${targetName ?? target}</a></span>`;
  if (KEY_ID.test(id)) return html`<span class="target"><${KeyLink} id=${id} name=${targetName ?? id} /></span>`;
  return target !== '*' && html`<span class="target wordy">${target}</span>`;
}
