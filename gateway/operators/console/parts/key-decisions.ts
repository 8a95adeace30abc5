import type { DecisionReport, DecisionsAnswer, ExplainAnswer } from '../../api/answers.ts';
import { ApiError, get, keyPath } from '../api.ts';
import { html } from '../html.ts';
import { usePolled } from '../polled.ts';
import { exactTime, outcomeInWords, reasonOf } from '../words.ts';
import { Card } from './pieces.ts';
import { type Column, Table } from './table.ts';

const EVERY_MS = 3_000;
const SHOWN = 10;

const COLUMNS: readonly Column<DecisionReport>[] = [
  { title: 'When', show: ({ at }) => html`<time datetime=${at}>${exactTime(at)}</time>` },
  {
    title: 'Decision',
    show: ({ outcome }) => html`<span class=${`badge ${outcome}`}>${outcomeInWords(outcome)}</span>`,
  },
  { title: 'Why', show: reasonOf },
  { title: 'Request', show: ({ requestId }) => html`<code class="id">${requestId}</code>` },
];

/** The last decisions on a key with their reasons, as far as this gateway remembers them. */
export function KeyDecisions({ id, request }: { id: string; request: string | null }) {
  const { value, fault } = usePolled(`decisions ${id} ${request}`, EVERY_MS, () => decisionsOn(id, request));
  return html`
    <${Card} title="Last decisions" id="decisions-title" actions=${html`<span class="note">of the last 1,000 of each process of this gateway</span>`}>
      <${Table} label="Last decisions" columns=${COLUMNS} rows=${value} fault=${fault}
        idOf=${(decision: DecisionReport) => `${decision.requestId} ${decision.at}`}
        isMarked=${({ requestId }: DecisionReport) => requestId === request}
        empty="This gateway remembers no decision on this key. Another gateway may have served it." />
    <//>
  `;
}

/** The decisions on the named request first: they can be older than the last ones. */
async function decisionsOn(id: string, request: string | null): Promise<readonly DecisionReport[]> {
  const [last, named] = await Promise.all([
    get<ExplainAnswer>(`${keyPath(id)}/explain?limit=${SHOWN}`),
    request === null ? [] : decisionsOnRequest(request),
  ]);
  const others = last.body.decisions.filter(({ requestId }) => requestId !== request);
  return [...named.filter(({ keyId }) => keyId === id), ...others];
}

async function decisionsOnRequest(request: string): Promise<readonly DecisionReport[]> {
  try {
    return (await get<DecisionsAnswer>(`/decisions/${encodeURIComponent(request)}`)).body.decisions;
  } catch (fault) {
    if (fault instanceof ApiError && fault.status === 404) return [];
    throw fault;
  }
}
