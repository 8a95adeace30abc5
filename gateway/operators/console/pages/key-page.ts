import type { KeyView } from '../../api/answers.ts';
import { ApiError, get, keyPath } from '../api.ts';
import { html } from '../html.ts';
import {
  askForBan,
  askForChanges,
  askForRevocation,
  askForRotation,
  askToDisable,
  askToLiftBan,
  askToReset,
} from '../key-dialogs.ts';
import { ActionButton } from '../parts/action-button.ts';
import { AuditCard } from '../parts/audit-list.ts';
import { KeyRequests } from '../parts/key-requests.ts';
import { KeySecrets } from '../parts/key-secrets.ts';
import { KeyUse } from '../parts/key-use.ts';
import { Card, Meter, State, TagChips, When } from '../parts/pieces.ts';
import { inWords } from '../parts/table.ts';
import { usePolled } from '../polled.ts';
import { addressOfAuditLog, type Route } from '../router.ts';
import { clock, number, planInWords, relative, runningBan, tooSmallInWords } from '../words.ts';

const EVERY_MS = 2_000;

/** Shows everything about one key, and the actions on it. */
export function KeyPage({ route: { query } }: { route: Route }) {
  const id = query.get('id') ?? '';
  const {
    value: key,
    fault,
    refresh,
  } = usePolled(`key ${id}`, EVERY_MS, async () => (await get<KeyView>(keyPath(id))).body);
  if (fault instanceof ApiError && fault.status === 404)
    return html`<h1>There is no such key</h1>
      <p>No key has the id <code>${id}</code>. It may have been revoked: <a href=${addressOfAuditLog({ target: id })}>its entries in the audit log</a> show who revoked it. <a href="/console/keys">All keys</a></p>`;
  if (key === undefined)
    return html`<h1>Key <code>${id}</code></h1>
      <p class="empty">${fault === undefined ? 'Loading …' : inWords(fault)}</p>`;
  return html`
    <p class="crumbs"><a href="/console/keys">Keys</a></p>
    <div class="page-head">
      <h1 class="wordy">${key.name}</h1>
      <${Actions} of=${key} changed=${refresh} />
    </div>
    <p class="under-title"><code class="id">${id}</code> <${State} state=${key.state} /> ${planInWords(key.plan)} plan <${TagChips} tags=${key.tags} /></p>
    ${fault !== undefined && html`<p class="stale" role="status">Not up to date: ${inWords(fault)}</p>`}
    <${StateNote} of=${key} />
    <div class="columns">
      <${Limits} of=${key} />
      <${Facts} of=${key} />
    </div>
    <${KeyUse} id=${id} />
    <${KeySecrets} of=${key} changed=${refresh} />
    <${KeyRequests} id=${id} />
    <${AuditCard} filters=${{ target: id }} isOfOneTarget=${true} />
  `;
}

interface OfKey {
  readonly of: KeyView;
  readonly changed: () => Promise<void>;
}

function Actions({ of: key, changed }: OfKey) {
  const isBanned = key.bannedUntil !== undefined;
  return html`
    <div class="bar">
      <${ActionButton} kind="main" onClick=${() => askForChanges(key, changed)}>Edit<//>
      <${ActionButton} onClick=${() => askForRotation(key, changed)}>Rotate<//>
      ${
        isBanned
          ? html`<${ActionButton} onClick=${() => askToLiftBan(key, changed)}>Lift ban<//>`
          : html`<${ActionButton} onClick=${() => askForBan(key, changed)}>Ban<//>`
      }
      <${ActionButton} onClick=${() => askToReset(key, changed)}>Reset limits<//>
      <${ActionButton} onClick=${() => askToDisable(key, changed)}>${key.state === 'disabled' ? 'Enable' : 'Disable'}<//>
      <${ActionButton} kind="danger" onClick=${() => askForRevocation(key)}>Revoke<//>
    </div>
  `;
}

/** Explains why the key is not active, and until when. */
function StateNote({ of: key }: { of: KeyView }) {
  const { state, bannedUntil, banReason, expiresAt, tooSmall, waitSeconds } = key;
  if (bannedUntil !== undefined)
    return html`<p class="notice bad">
      Banned ${runningBan(key)}, among the recent requests of all gateways.
      ${banReason === undefined ? ` It kept sending more than nine times its limit, without a pause. The next ban within a day is twice as long.` : ` Reason: ${banReason}`}
    </p>`;
  if (state === 'disabled') return html`<p class="notice">An operator has disabled this key. Its requests get 401.</p>`;
  if (state === 'expired' && expiresAt !== undefined)
    return html`<p class="notice">Expired at ${clock(expiresAt)}, ${relative(expiresAt)}: its requests get 401.</p>`;
  if (state === 'unreadable')
    return html`<p class="notice bad">The data of this key cannot be read, so its requests get 503. Fix it by hand, or revoke the key.</p>`;
  if (tooSmall)
    return html`<p class="notice">The key is ${tooSmallInWords(waitSeconds)}. Its line of refused requests has been longer than a minute for ten minutes. Raise its limit, or make its clients send less.</p>`;
  return undefined;
}

function Limits({ of: { plan, minute, day, buckets } }: { of: KeyView }) {
  const row = (title: string, own: number | undefined, which: 'minute' | 'day') => {
    const bucket = buckets?.[which];
    return html`
      <div>
        <dt>${title} <span class="note">${own === undefined ? `from the ${planInWords(plan)} plan` : 'own limit'}</span></dt>
        <dd>
          <${Meter} bucket=${bucket} label=${title} />
          ${bucket !== undefined && html`<span class="note">${number(bucket.remaining)} left${bucket.fullAt === undefined ? ', full' : `, full again at ${clock(bucket.fullAt)}`}</span>`}
        </dd>
      </div>
    `;
  };
  return html`
    <${Card} title="Limits" id="limits-title">
      <dl class="facts">${row('Requests a minute', minute, 'minute')} ${row('Requests a day', day, 'day')}</dl>
    <//>
  `;
}

function Facts({ of: { createdAt, expiresAt, lastUsedAt, admitted, refused, shadowed } }: { of: KeyView }) {
  const when = (at: string | undefined, otherwise: string) =>
    at === undefined ? otherwise : html`<${When} at=${at} />`;
  return html`
    <${Card} title="About" id="about-title">
      <dl class="facts">
        <div><dt>Last used</dt><dd>${when(lastUsedAt, 'never')}</dd></div>
        <div><dt>Issued</dt><dd>${when(createdAt, '–')}</dd></div>
        <div><dt>Expires</dt><dd>${when(expiresAt, 'never')}</dd></div>
        <div>
          <dt>Requests so far</dt>
          <dd>
            ${`${number(admitted)} admitted, ${number(refused)} refused `}
            ${shadowed !== undefined && html`<span class="note">${number(shadowed)} only because of shadow mode</span>`}
          </dd>
        </div>
      </dl>
    <//>
  `;
}
