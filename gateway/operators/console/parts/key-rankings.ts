import type { KeysAnswer, KeyView, TopAnswer } from '../../api/answers.ts';
import { bodyOf } from '../api.ts';
import { html } from '../html.ts';
import { usePolled } from '../polled.ts';
import { firstFilled } from '../whole-answers.ts';
import { number, percent, planInWords } from '../words.ts';
import { Card, KeyLink, Meter, StateOf } from './pieces.ts';
import { type Column, Table } from './table.ts';

const EVERY_MS = 5_000;
const SHOWN = '8';

type LoudKey = TopAnswer['keys'][number];

const LOUD: readonly Column<LoudKey>[] = [
  { title: 'Key', show: (key) => html`<${KeyLink} ...${key} />` },
  { title: 'State', show: StateOf },
  { title: 'Requests', isFigure: true, show: ({ recent }) => number(recent.admitted + recent.refused) },
  {
    title: 'Refused',
    isFigure: true,
    show: ({ recent: { admitted, refused } }) =>
      html`${number(refused)} ${refused > 0 && html`<span class="note">${percent(refused, admitted + refused)}</span>`}`,
  },
];

/** Lists the keys with the most requests in the last minutes. */
export function BusiestKeys() {
  const { value, fault } = usePolled('top', EVERY_MS, () =>
    firstFilled<TopAnswer>(bodyOf, '/keys/top', { limit: SHOWN }, ({ keys }) => keys),
  );
  return html`
    <${Card} title="Busiest keys" id="busiest-title" actions=${html`<span class="note">last ${value?.minutes ?? 5} minutes</span>`}>
      <${Table} label="Busiest keys" columns=${LOUD} rows=${value?.keys} fault=${fault} idOf=${idOf}
        empty="No key had a request in these minutes." />
    <//>
  `;
}

const NEAR: readonly Column<KeyView>[] = [
  { title: 'Key', show: (key) => html`<${KeyLink} ...${key} />` },
  { title: 'Plan', show: ({ plan }) => planInWords(plan) },
  { title: 'State', show: StateOf },
  { title: 'Used today', show: ({ buckets }) => html`<${Meter} bucket=${buckets?.day} label="Day" />` },
];

/** Lists the keys that have used at least 80 % of their day limit. */
export function NearTheirLimit() {
  const { value, fault } = usePolled('near', EVERY_MS, () =>
    firstFilled<KeysAnswer>(bodyOf, '/keys', { near: '80', limit: SHOWN }, ({ keys }) => keys),
  );
  const more = value?.next !== undefined && html`<a href="/console/keys?near=80">All of them</a>`;
  return html`
    <${Card} title="Near their day limit" id="near-title" actions=${more || html`<span class="note">80 % or more used</span>`}>
      <${Table} label="Near their day limit" columns=${NEAR} rows=${value?.keys} fault=${fault} idOf=${idOf}
        empty="No key has used 80 % of its day limit." />
    <//>
  `;
}

const idOf = ({ id }: { readonly id: string }): string => id;
