import { useRef, useState } from 'preact/hooks';
import type { RequestsAnswer, RequestView } from '../../api/answers.ts';
import { bodyOf } from '../api.ts';
import { type Content, html } from '../html.ts';
import { usePolled } from '../polled.ts';
import { outcomeOf } from '../request-words.ts';
import { addressOfRequests } from '../router.ts';
import { firstFilled } from '../whole-answers.ts';
import { clockToSecond, exactTime, milliseconds, number } from '../words.ts';
import { BanNote, KeyLink } from './pieces.ts';
import { RequestDetails } from './request-details.ts';
import { type Column, Table } from './table.ts';

const EVERY_MS = 3_000;

const KEY: Column<RequestView> = { title: 'Key', show: (request) => html`<${KeyOf} ...${request} />` };

const COLUMNS: readonly Column<RequestView>[] = [
  { title: 'Time', show: ({ at }) => html`<time datetime=${at} title=${exactTime(at)}>${clockToSecond(at)}</time>` },
  {
    title: 'Request',
    show: ({ method, path }) => html`<code class="wordy">${method} ${path}</code>`,
  },
  { title: 'Status', show: ({ status }) => status },
  { title: 'Outcome', show: (request) => html`<${Outcome} of=${request} />` },
  {
    title: 'Duration',
    isFigure: true,
    show: ({ status, durationMs }) => (status === undefined ? '–' : milliseconds(durationMs)),
  },
  {
    title: 'Request id',
    show: ({ requestId }) =>
      html`<a class="cut" href=${addressOfRequests({ q: requestId })} title=${requestId}><code>${requestId}</code></a>`,
  },
];

const WITH_KEYS = COLUMNS.toSpliced(1, 0, KEY);

interface RequestListProps {
  readonly label: string;
  /** The query of the call. */
  readonly asked: Readonly<Record<string, string>>;
  readonly hasKeys: boolean;
  /** Whether a single request is opened at once. */
  readonly opensOnlyOne?: boolean;
  readonly empty: string;
  /** What follows the table. @param next continues the list */
  after?(next: string | undefined): Content;
}

/** Lists requests of all gateways, the newest first. While one of them is open, the list stays as it is. */
export function RequestList({ label, asked, hasKeys, opensOnlyOne = false, empty, after }: RequestListProps) {
  const path = `requests ${JSON.stringify(asked)}`;
  const [chosen, setChosen] = useState<ReadonlyMap<string, boolean>>(new Map());
  const isOpen = (request: RequestView, among: readonly RequestView[]) =>
    chosen.get(idOf(request)) ?? (opensOnlyOne && among.length === 1);
  const shown = useRef<{ path: string; answer: RequestsAnswer }>(undefined);
  const isHeld = () => {
    const rows = shown.current?.path === path ? shown.current.answer.requests : [];
    const open = rows.filter((request) => isOpen(request, rows));
    return open.length > 0 && open.every(({ status }) => status !== undefined);
  };
  const { value, fault } = usePolled(path, EVERY_MS, async () => {
    if (isHeld() && shown.current !== undefined) return shown.current.answer;
    const answer = await firstFilled<RequestsAnswer>(bodyOf, '/requests', asked, ({ requests }) => requests);
    shown.current = { path, answer };
    return answer;
  });
  const rows = value?.requests;
  const toggle = (request: RequestView) =>
    setChosen((old) => new Map(old).set(idOf(request), !isOpen(request, rows ?? [])));
  const more = {
    of: (request: RequestView) => html`<${RequestDetails} of=${request} leadsToKey=${hasKeys} />`,
    isOpen: (request: RequestView) => isOpen(request, rows ?? []),
    toggle,
  };
  const isStill = rows !== undefined && rows.length > 1 && isHeld();
  return html`
    ${value !== undefined && value.missing.length > 0 && html`<p class="notice wordy" role="status">This list is incomplete. These did not answer: ${value.missing.join(', ')}.</p>`}
    <${Table} label=${label} columns=${hasKeys ? WITH_KEYS : COLUMNS} rows=${rows} fault=${fault} idOf=${idOf} empty=${empty} more=${more} />
    <p class="note" role="status">${isStill && 'While a request is open, the list is not updated.'}</p>
    ${after?.(value?.next)}
  `;
}

/** Clients choose the ids of requests, so several requests can have the same one. */
const idOf = ({ requestId, at, gateway }: RequestView): string => `${requestId} ${at} ${gateway.pid}`;

function KeyOf({ keyId, keyName, keyBan }: RequestView) {
  if (keyId === undefined) return html`<span class="note">none</span>`;
  if (keyName === undefined) return html`<code class="id">${keyId}</code>`;
  return html`<span class="key"><${KeyLink} id=${keyId} name=${keyName} /></span> <${BanNote} ban=${keyBan} />`;
}

function Outcome({ of: request }: { of: RequestView }) {
  const { text, look } = outcomeOf(request);
  return html`
    <span class=${`badge ${look}`}>${text}</span>
    ${request.repeated > 0 && html` <span class="note">and ${number(request.repeated)} more</span>`}
  `;
}
