import { useEffect, useRef, useState } from 'preact/hooks';
import type { DecisionReport, FoundAnswer, KeysAnswer, KeyView, RequestsAnswer, RequestView } from '../api/answers.ts';
import { firstFilled, isSameName, lacksOlder, partsOf, revokedKeys, timesInWords, withTimes } from '../clients.ts';
import { ApiError, bodyOf, isKeyId, keyPath, usePolled } from './api.ts';
import { addressOf } from './page-names.ts';
import {
  BanNote,
  type Column,
  type Content,
  Facts,
  type FilterSpec,
  Filters,
  type FilterValues,
  filtersIn,
  html,
  KeyLink,
  Missing,
  Pager,
  StateOf,
  Table,
  When,
} from './parts.ts';
import { navigate, type Route } from './router.ts';
import { clockToSecond, counted, exactTime, milliseconds, number, planInWords, relative, runningBan } from './words.ts';

/** The recent requests on all gateways: the list, and the details of each. */

/** Suggested values. Others can be typed. */
const STATUSES = ['2xx', '4xx', '5xx', '401', '403', '429', '499', '502', '503', '504'];
const CODES = [
  'rate_limit_exceeded',
  'key_banned',
  'unauthorized',
  'insufficient_scope',
  'bad_gateway',
  'gateway_timeout',
  'unavailable',
];

/** The filters of the admin API. */
const SPECS: readonly FilterSpec[] = [
  { name: 'keyId', label: 'Key id or name' },
  { name: 'tag', label: 'Tag', placeholder: 'customer=acme' },
  { name: 'status', label: 'Status', suggestions: STATUSES, placeholder: '429 or 4xx' },
  { name: 'code', label: 'Error code', suggestions: CODES },
  { name: 'q', label: 'Contains', placeholder: 'id, path, address' },
  { name: 'from', label: 'From', type: 'datetime-local' },
  { name: 'to', label: 'To', type: 'datetime-local' },
];

/** Lists the last requests on all gateways, or those that the URL selects. */
export function RequestsPage({ route }: { route: Route }) {
  const filters = filtersIn(SPECS, route.query);
  const after = route.query.get('after');
  const asked = { limit: '50', ...filters, ...(after !== null && { after }) };
  const list = html`
    <section class="card" aria-label="Requests">
      <${RequestList} label="Requests" asked=${asked} hasKeys=${true} opensOnlyOne=${filters.q !== undefined} pages=${route}
        empty=${Object.keys(filters).length > 0 ? 'No recent request matches these filters.' : 'There are no requests yet.'} />
    </section>
  `;
  return html`
    <h1>Requests</h1>
    <p class="note">The last requests on all gateways. Open one to see what happened, why, and what to do. Older ones are in the log.</p>
    <${Filters} specs=${SPECS} route=${route} />
    ${filters.keyId === undefined ? list : html`<${KeysNamed} text=${filters.keyId} filters=${filters}>${list}<//>`}
  `;
}

interface KeysNamedProps {
  readonly text: string;
  readonly filters: FilterValues;
  /** The list of requests. It is shown only if the text has the form of a key id. */
  readonly children: Content;
}

/**
 * If a name was typed into the key filter, selects the key with this name, offers a choice, or reports that there is
 * none.
 */
function KeysNamed({ text, filters, children }: KeysNamedProps) {
  const { value, fault } = usePolled(`keys named ${text}`, 600_000, () => findNamed(text));
  const { same = [], similar = [] } = value ?? {};
  const addressFor = (id: string) => addressOf('requests', { ...filters, keyId: id });
  const only = same.length === 1 ? same[0] : undefined;
  const isOther = only !== undefined && only.id !== text;
  useEffect(() => (isOther ? navigate(addressFor(only.id), 'replace') : undefined), [only]);
  if (isOther) return undefined;
  const isId = isKeyId(text);
  const choice = same.length === 0 && !isId ? similar : same;
  const none = `No key has the id or name “${text}”.`;
  if (choice.length === 0 && !isId)
    return html`<section class="card" aria-label="Requests"><${Missing} fault=${fault}>${value && none}<//></section>`;
  if (only !== undefined || choice.length === 0)
    return html`
      ${only && html`<p class="notice wordy" role="status">The key ${only.name} was revoked. Its id was <code>${text}</code>.</p>`}
      ${children}
    `;
  return html`
    <div class="notice wordy" role="status">
      ${same.length === 0 ? `${none} These names contain it:` : `Several keys have the name “${text}”. Choose one:`}
      <ul class="plain">
        ${choice.slice(0, MOST_OFFERED).map((key) => html`<li key=${key.id}><a href=${addressFor(key.id)}>${key.name}</a> <code class="id">${key.id}</code> ${'state' in key ? html`<${StateOf} ...${key} />` : html`<span class="note">revoked <${When} at=${key.revokedAt} /></span>`}</li>`)}
        ${choice.length > MOST_OFFERED && html`<li class="note">and ${counted(choice.length - MOST_OFFERED, 'more key')}</li>`}
      </ul>
    </div>
  `;
}

const MOST_OFFERED = 20;

type Revoked = { readonly id: string; readonly name: string; readonly revokedAt: string };

interface Named {
  /** The keys with this name or, if there are none, the revoked keys that had it. */
  readonly same?: readonly (KeyView | Revoked)[];
  /** The keys whose names contain the typed text. */
  readonly similar?: readonly KeyView[];
}

/** Finds keys by name, as the command line does. The id of a key is never read as a name. */
async function findNamed(text: string): Promise<Named> {
  if (isKeyId(text)) {
    const { keys } = await bodyOf<FoundAnswer>(`/keys/find?text=${text}`);
    if (keys[0]?.foundBy === 'id') return {};
  }
  const similar: KeyView[] = [];
  for await (const { keys } of partsOf<KeysAnswer>(bodyOf, '/keys', { name: text })) similar.push(...keys);
  const same = similar.filter(({ name }) => isSameName(name, text));
  if (same.length > 0) return { same };
  const revoked = await revokedKeys(bodyOf, text);
  const named = revoked.map(({ target: id, targetName: name = text, at: revokedAt }) => ({ id, name, revokedAt }));
  return { similar, same: named };
}

const COLUMNS: readonly Column<RequestView>[] = [
  { title: 'Time', show: ({ at }) => html`<time datetime=${at} title=${exactTime(at)}>${clockToSecond(at)}</time>` },
  { title: 'Request', show: ({ method, path }) => html`<code class="wordy">${method} ${path}</code>` },
  { title: 'Status', show: ({ status }) => status },
  { title: 'Outcome', show: Outcome },
  {
    title: 'Duration',
    isFigure: true,
    show: ({ status, durationMs }) => (status === undefined ? '–' : milliseconds(durationMs)),
  },
  {
    title: 'Request id',
    show: ({ requestId }) =>
      html`<a class="cut" href=${addressOf('requests', { q: requestId })} title=${requestId}><code>${requestId}</code></a>`,
  },
];

const WITH_KEYS = COLUMNS.toSpliced(1, 0, { title: 'Key', show: KeyOf });

interface RequestListProps {
  readonly label: string;
  /** The query of the call. */
  readonly asked: Readonly<Record<string, string>>;
  readonly hasKeys: boolean;
  /** Whether a single request is opened at once. */
  readonly opensOnlyOne?: boolean;
  readonly empty: string;
  /** The page whose URL selects a part of the list. Without it, there is no pager. */
  readonly pages?: Route;
}

/** Lists requests on all gateways, newest first. While one of them is open, the list is not updated. */
export function RequestList({ label, asked, hasKeys, opensOnlyOne = false, empty, pages }: RequestListProps) {
  const [chosen, setChosen] = useState<ReadonlyMap<string, boolean>>(new Map());
  const held = useRef<RequestsAnswer>(undefined);
  const { value, fault } = usePolled(
    `requests ${JSON.stringify(asked)}`,
    3_000,
    async () =>
      held.current ?? (await firstFilled<RequestsAnswer>(bodyOf, '/requests', asked, ({ requests }) => requests)),
  );
  const rows = value?.requests;
  const isOpen = (request: RequestView) => chosen.get(idOf(request)) ?? (opensOnlyOne && rows?.length === 1);
  const open = rows?.filter(isOpen) ?? [];
  // While an open request is in progress, updates continue, so that its status is shown once it is known.
  held.current = open.length > 0 && open.every(({ status }) => status !== undefined) ? value : undefined;
  const more = {
    of: (request: RequestView) => html`<${RequestDetails} of=${request} leadsToKey=${hasKeys} />`,
    isOpen,
    toggle: (request: RequestView) => setChosen((old) => new Map(old).set(idOf(request), !isOpen(request))),
  };
  const isStill = held.current !== undefined && held.current.requests.length > 1;
  return html`
    ${value !== undefined && value.missing.length > 0 && html`<p class="notice wordy" role="status">This list is incomplete. These gateways did not respond: ${value.missing.join(', ')}.</p>`}
    <${Table} label=${label} columns=${hasKeys ? WITH_KEYS : COLUMNS} rows=${rows} fault=${fault} idOf=${idOf} empty=${empty} more=${more} />
    <p class="note" role="status">
      ${isStill && 'While a request is open, the list is not updated. '}
      ${value !== undefined && lacksOlder(value.requests, value.since, asked.from) && `Requests before ${clockToSecond(value.since)} may be missing, because a gateway or worker started then.`}
    </p>
    ${pages && html`<${Pager} route=${pages} next=${value?.next} />`}
  `;
}

/** Clients may choose request ids, so several requests can have the same one. */
const idOf = ({ requestId, at, gateway }: RequestView): string => `${requestId} ${at} ${gateway.pid}`;

function KeyOf({ keyId, keyName, keyBan }: RequestView) {
  if (keyId === undefined) return html`<span class="note">none</span>`;
  if (keyName === undefined) return html`<code class="id">${keyId}</code>`;
  return html`<span class="key"><${KeyLink} id=${keyId} name=${keyName} /></span> <${BanNote} ban=${keyBan} />`;
}

function Outcome(request: RequestView) {
  const { text, look } = outcomeOf(request);
  return html`
    <span class=${`badge ${look}`}>${text}</span>
    ${request.repeated > 0 && html` <span class="note">and ${number(request.repeated)} more</span>`}
  `;
}

interface RequestDetailsProps {
  readonly of: RequestView;
  /** Whether to link to the key. The key's own page needs no such link. */
  readonly leadsToKey: boolean;
}

/** Shows one request in plain words: what happened, why, when requests work again, and what to check or change. */
function RequestDetails({ of: request, leadsToKey }: RequestDetailsProps) {
  const { reason, advice, repeated, decision, keyId } = request;
  // When the limit or the ban that refused this request admits requests again.
  const again = decision?.outcome === 'banned' ? decision.bannedUntil : decision?.retryAt;
  return html`
    <div class="request">
      <p class="wordy">
        ${happened(request)} ${reason !== undefined && html`${withLocalTimes(reason)} `}
        ${again !== undefined && keyId !== undefined && html`<${Again} at=${again} keyId=${keyId} outcome=${request.outcome} /> `}
        ${advice !== undefined && html`${advice} `}
        ${repeated > 0 && repeatedInWords(request)}
      </p>
      <${FactsOf} ...${request} />
      <${Links} of=${request} leadsToKey=${leadsToKey} />
    </div>
  `;
}

/**
 * Says when requests with the key will work again. The key is read again, because it may have changed since the
 * refusal.
 */
function Again({ at, keyId, outcome }: { at: string; keyId: string; outcome: RequestView['outcome'] }) {
  const { value: key, fault } = usePolled<KeyView>(keyPath(keyId), 10_000);
  if (fault instanceof ApiError && fault.status === 404) return 'The key has been revoked since.';
  if (key?.state === 'banned') return `The key is banned ${runningBan(key)}.`;
  if (key !== undefined && key.state !== 'active') return `The key is ${key.state} now.`;
  const { buckets, waitSeconds } = key ?? {};
  // A single token is soon taken by a client that waits in line.
  if (buckets !== undefined && Math.min(buckets.minute.remaining, buckets.day.remaining) > (waitSeconds ? 1 : 0))
    return 'Requests with the key work again now.';
  if (key !== undefined && outcome === 'banned') return 'The ban has ended.';
  if (Date.parse(at) <= Date.now())
    return `That time has passed.${waitSeconds ? ` A request refused now would wait ${counted(waitSeconds, 'second')}.` : ''}`;
  return outcome === 'banned'
    ? `Unless it is lifted, the ban ends ${relative(at)}.`
    : `Requests work again ${relative(at)}.`;
}

/** Converts the times in a string to local time. */
const withLocalTimes = (text: string): Content =>
  withTimes(text, (time) => html`<time datetime=${time}>${clockToSecond(time)}</time>`);

const DECIDED_BY = { local: 'the gateway, while Redis was unavailable', shared: 'the limits shared by all gateways' };

function FactsOf(request: RequestView) {
  const { decision, gateway, requestId } = request;
  const { plan, planVersion, buckets, mode, rejectedOverrides } = decision ?? {};
  const worker = gateway.worker === undefined ? '' : `, worker ${gateway.worker}`;
  const facts: readonly (readonly [string, Content])[] = [
    ['Request id', html`<a href=${addressOf('requests', { q: requestId })}><code>${requestId}</code></a>`],
    ['Time spent', timesInWords(request.times, milliseconds)],
    [
      'Plan',
      plan && html`${planInWords(plan)} ${planVersion && html`<span class="note">version ${planVersion}</span>`}`,
    ],
    ['Minute limit', buckets && bucketInWords(buckets.minute)],
    ['Day limit', buckets && bucketInWords(buckets.day)],
    ['Own limits rejected', rejectedOverrides?.join(', ')],
    ['Decided by', mode && DECIDED_BY[mode]],
    ['Gateway', `${gateway.host}, process ${gateway.pid}${worker}`],
  ];
  return html`<${Facts} of=${facts.filter(([, fact]) => fact)} />`;
}

function Links({ of: request, leadsToKey }: RequestDetailsProps) {
  const { keyId, keyName, decision, outcome } = request;
  const runbook = runbookPageOf(request);
  const links = [
    leadsToKey && keyId !== undefined && keyName !== undefined && [`Key ${keyName}`, addressOf('key', { id: keyId })],
    decision?.plan !== undefined && [`Plan ${planInWords(decision.plan)}`, addressOf('plans')],
    outcome === 'unknown' &&
      keyId !== undefined && ['Audit log of this key id', addressOf('activity', { target: keyId })],
    outcome === 'banned' && ['Bans', addressOf('bans')],
    runbook !== undefined && ['Runbook', `/runbook#${runbook}`],
  ].filter((link) => link !== false);
  return (
    links.length > 0 &&
    html`<p class="bar">${links.map(([text, to]) => html`<a class="wordy" href=${to}>${text}</a>`)}</p>`
  );
}

/** What each outcome is called, and the anchor of its section in the runbook. */
const OUTCOMES: Readonly<Record<string, readonly [text: string, section?: string]>> = {
  admitted: ['Admitted'],
  refused: ['Refused', 'a-client-complains-of-429'],
  banned: ['Banned', 'a-client-complains-of-429'],
  forbidden: ['Not in scope'],
  unknown: ['Unknown key', 'gatewayunknownkeys'],
  disabled: ['Key disabled'],
  expired: ['Expired'],
  elsewhere: ['Other network', 'gatewaysecretelsewhere'],
  malformed: ['No valid key'],
  shed: ['Shed under load', 'gatewayshedding'],
  unavailable: ['Redis unavailable', 'gatewaydecisionslocal'],
  unusable: ['Key unreadable', 'gatewaykeydatabad'],
  reference: ['Reference file'],
  own: ['Answered by the gateway'],
  invalid: ['Invalid request'],
  failed: ['Failed'],
  left: ['Client disconnected'],
};

const LEFT = 499;

/** Returns the text and the style of a request's badge. */
function outcomeOf({ status, outcome, decision }: RequestView): { readonly text: string; readonly look: string } {
  if (status === undefined) return { text: 'In progress', look: '' };
  if (status === LEFT) return { text: 'Client disconnected', look: 'warning' };
  const [text] = OUTCOMES[outcome] ?? [outcome];
  if (outcome === 'admitted' && status >= 500) return { text: 'Failed', look: 'fault' };
  if (decision?.shadow !== undefined) return { text: 'Over the limit, in shadow mode', look: 'warning' };
  if (status < 400 || outcome === 'admitted') return { text, look: 'good' };
  return { text, look: status >= 500 || outcome === 'banned' ? 'fault' : 'warning' };
}

/** Describes what has happened to a request so far. */
function happened({ method, path, status, code, durationMs, address, secretId }: RequestView): string {
  const what = `${method} ${path} came from ${address}${secretId === undefined ? '' : ` with the secret ${secretId}`}`;
  if (status === undefined) return `${what}. It is in progress.`;
  if (status === LEFT) return `${what} and ran for ${milliseconds(durationMs)}.`;
  const named = code === undefined ? String(status) : `${status} ${code}`;
  return `${what} and was answered with ${named} after ${milliseconds(durationMs)}.`;
}

const repeatedInWords = ({ repeated, decision }: RequestView): string =>
  `${decision === undefined ? 'Its address' : 'The key'} sent ${number(repeated)} more like it in the same minute.`;

type Bucket = NonNullable<DecisionReport['buckets']>['day'];

const bucketInWords = ({ before, after, limit }: Bucket): string =>
  `${tokens(before)}${before === after ? '' : ` → ${tokens(after)}`} of ${counted(limit, 'request')} left`;

/** Rounds down to two decimals, because a bucket with 0.999 has no request left. */
const tokens = (value: number): string => number(Math.floor(value * 100) / 100);

/** The anchor of the runbook section for a request; undefined if there is none. */
function runbookPageOf({ status, outcome, code }: RequestView): string | undefined {
  if (status === undefined || status === LEFT || status < 400) return undefined;
  // The core refused the request, so the client must change it.
  if (outcome === 'admitted' && status < 500) return undefined;
  return OUTCOMES[outcome]?.[1] ?? OF_CODES[code ?? ''];
}

const OF_CODES: Readonly<Record<string, string>> = {
  rate_limit_exceeded: 'gatewayunknownkeys',
  bad_gateway: 'coreunreachable',
  gateway_timeout: 'coreerrors',
  internal_error: 'gatewayerrorratiohigh',
};
