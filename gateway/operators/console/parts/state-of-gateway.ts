import { useEffect, useState } from 'preact/hooks';
import type { TrafficAnswer } from '../../api/answers.ts';
import { get } from '../api.ts';
import { type Trouble, trouble } from '../connection.ts';
import { html } from '../html.ts';
import { usePolled } from '../polled.ts';
import { clock, counted, relative, upperFirst } from '../words.ts';

const EVERY_MS = 1_000;
const RENDER_EVERY_MS = 500;

interface State {
  readonly kind: 'well' | 'warning' | 'bad';
  readonly title: string;
  readonly text: string;
  readonly since: string | undefined;
}

/** Shows the state of the gateway on every page. Any trouble has the time of its start. */
export function StateOfGateway() {
  const { value } = usePolled('state', EVERY_MS, async () => (await get<TrafficAnswer>('/traffic')).body);
  const [, render] = useState(0);
  // A request without an answer does not end its poll, so a timer renders the state again.
  useEffect(() => {
    const timer = setInterval(() => render(Date.now()), RENDER_EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  const { kind, title, text, since } = stateOf(value, trouble());
  return html`
    <div id="state" class=${`state ${kind}`} role="status">
      <strong><span class="dot" aria-hidden="true"></span>${title}</strong>
      ${text !== '' && html`<span>${text}</span>`}
      ${since !== undefined && html`<span>Since ${clock(since)}, ${relative(since)}.</span>`}
    </div>
  `;
}

function stateOf(traffic: TrafficAnswer | undefined, found: Trouble | undefined): State {
  const since = found?.since.toISOString();
  if (found?.kind === 'silent')
    return {
      kind: 'bad',
      title: 'No answer',
      text: 'The gateway does not answer. The data on this page is old.',
      since,
    };
  if (traffic?.mode === 'local')
    return {
      kind: 'bad',
      title: 'Redis is away',
      text: 'Decisions are local. This gateway uses the last known data, and keys that it has not seen get 503.',
      since: traffic.modeSince,
    };
  if (found?.kind === 'unreadable')
    return {
      kind: 'bad',
      title: 'Redis is away',
      text: 'Keys, bans and plans cannot be read. Their data on this page is old.',
      since,
    };
  if (traffic === undefined) return { kind: 'well', title: 'Loading …', text: '', since: undefined };
  const { rejectedValues } = traffic.planTable;
  if (rejectedValues > 0)
    return {
      kind: 'warning',
      title: `${counted(rejectedValues, 'plan value')} not in force`,
      text: 'See Health.',
      since: undefined,
    };
  const { workers } = traffic;
  if (workers !== undefined && workers.serving < workers.wanted)
    return {
      kind: 'warning',
      title: `${workers.serving} of ${workers.wanted} workers serve`,
      text: 'See Health.',
      since: undefined,
    };
  const { health } = traffic;
  if (health !== undefined) {
    const { about, status, found, since: from } = health;
    const isUnknown = status === 'unknown';
    const title = isUnknown ? `Unknown: ${about}` : upperFirst(about);
    return { kind: isUnknown ? 'warning' : 'bad', title, text: `It ${found}.`, since: from };
  }
  return { kind: 'well', title: 'All well', text: 'Every limit is exact.', since: undefined };
}
