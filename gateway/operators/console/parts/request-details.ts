import type { RequestView } from '../../api/answers.ts';
import { type Content, html } from '../html.ts';
import {
  bucketInWords,
  happened,
  repeatedInWords,
  runbookPageOf,
  splitInWords,
  worksAgainAt,
} from '../request-words.ts';
import { addressOf, addressOfAuditLog, addressOfKey, addressOfRequests } from '../router.ts';
import { clockToSecond, planInWords, relative } from '../words.ts';

interface RequestDetailsProps {
  readonly of: RequestView;
  /** Whether to link to the key, which its own page does not need. */
  readonly leadsToKey: boolean;
}

/** Shows one request in plain words: what happened, why, when it works again, and what to check or to change. */
export function RequestDetails({ of: request, leadsToKey }: RequestDetailsProps) {
  const { reason, advice, repeated } = request;
  const again = worksAgainAt(request);
  return html`
    <div class="request">
      <p class="wordy">
        ${happened(request)} ${reason !== undefined && html`${withLocalTimes(reason)} `}
        ${again !== undefined && html`${againInWords(again, request)}`}
        ${advice !== undefined && html`${advice} `}
        ${repeated > 0 && repeatedInWords(request)}
      </p>
      <${Facts} ...${request} />
      <${Links} of=${request} leadsToKey=${leadsToKey} />
    </div>
  `;
}

/** Says when requests work again. A ban can be lifted before its end. */
function againInWords(again: string, { outcome }: RequestView): string {
  if (Date.parse(again) <= Date.now()) return 'That time has passed. ';
  return outcome === 'banned'
    ? `Unless it is lifted, the ban ends ${relative(again)}. `
    : `Requests work again ${relative(again)}. `;
}

const TIME = /(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)/;

/** Converts the times in a text to local time. */
const withLocalTimes = (text: string): Content =>
  text.split(TIME).map((part) => (TIME.test(part) ? html`<time datetime=${part}>${clockToSecond(part)}</time>` : part));

function Facts(request: RequestView) {
  const { decision, gateway, requestId } = request;
  const { plan, planVersion, buckets, mode, rejectedOverrides } = decision ?? {};
  const facts: readonly (readonly [string, Content])[] = [
    ['Request id', html`<a href=${addressOfRequests({ q: requestId })}><code>${requestId}</code></a>`],
    ['Time spent', splitInWords(request)],
    [
      'Plan',
      plan && html`${planInWords(plan)} ${planVersion && html`<span class="note">version ${planVersion}</span>`}`,
    ],
    ['Minute limit', buckets && bucketInWords(buckets.minute)],
    ['Day limit', buckets && bucketInWords(buckets.day)],
    ['Own limits rejected', rejectedOverrides?.join(', ')],
    [
      'Decided by',
      mode && (mode === 'local' ? 'the gateway, while Redis was away' : 'the limits shared by all gateways'),
    ],
    [
      'Gateway',
      `${gateway.host}, process ${gateway.pid}${gateway.worker === undefined ? '' : `, worker ${gateway.worker}`}`,
    ],
  ];
  return html`
    <dl class="facts">
      ${facts.map(([name, fact]) => fact && html`<div><dt>${name}</dt><dd class="wordy">${fact}</dd></div>`)}
    </dl>
  `;
}

function Links({ of: request, leadsToKey }: RequestDetailsProps) {
  const { keyId, keyName, decision, outcome } = request;
  const runbook = runbookPageOf(request);
  const links: readonly (readonly [string, string])[] = [
    ...(leadsToKey && keyId !== undefined && keyName !== undefined
      ? [[`Key ${keyName}`, addressOfKey(keyId)] as const]
      : []),
    ...(decision?.plan === undefined ? [] : [[`Plan ${planInWords(decision.plan)}`, addressOf('plans')] as const]),
    ...(outcome === 'unknown' && keyId !== undefined
      ? [['Audit log of this key id', addressOfAuditLog({ target: keyId })] as const]
      : []),
    ...(outcome === 'banned' ? [['Bans', addressOf('bans')] as const] : []),
    ...(runbook === undefined ? [] : [['Runbook', `/runbook#${runbook}`] as const]),
  ];
  return (
    links.length > 0 &&
    html`<p class="bar">${links.map(([text, to]) => html`<a class="wordy" href=${to}>${text}</a>`)}</p>`
  );
}
