import { render } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { CallerAnswer, FoundAnswer, RequestsAnswer, TrafficAnswer } from '../api/answers.ts';
import { isZoneUnknown, searchText } from '../clients.ts';
import { AccessPage, LogIn } from './access.ts';
import { bodyOf, forgetCaller, keptToken, noteCaller, type Trouble, usePolled, useTrouble } from './api.ts';
import { AuditLogPage } from './audit-log.ts';
import { closeDialog, pauseDialog, resumeDialog } from './dialog.ts';
import { HealthPage } from './health.ts';
import { KeyPage } from './key.ts';
import { BansPage, KeysPage, UsagePage } from './keys.ts';
import { OverviewPage } from './overview.ts';
import { addressOf, MENU, type PageName, TITLES } from './page-names.ts';
import { type Content, clearMessage, html, roleInWords } from './parts.ts';
import { PlansPage } from './plans.ts';
import { RequestsPage } from './requests.ts';
import { followLinks, navigate, type Route, useRoute } from './router.ts';
import { clock, counted, planInWords, relative, upperFirst } from './words.ts';

/** The frame of all pages: login, menu, search, and the state of the gateway. */

const VIEWS: Readonly<Record<PageName, (props: { route: Route }) => Content>> = {
  overview: OverviewPage,
  keys: KeysPage,
  key: KeyPage,
  requests: RequestsPage,
  usage: UsagePage,
  plans: PlansPage,
  bans: BansPage,
  activity: AuditLogPage,
  access: AccessPage,
  health: HealthPage,
  nowhere: NowherePage,
};

/** Shows the login form or, after login, the page of the current URL. */
function App() {
  const [isLoggedIn, setLoggedIn] = useState(keptToken() !== null);
  const [why, setWhy] = useState('');

  function logOut(reason: string, leaveDialog = closeDialog) {
    forgetCaller();
    leaveDialog();
    clearMessage();
    setWhy(reason);
    setLoggedIn(false);
  }

  useEffect(() => {
    const refused = () => logOut('The token is no longer accepted.', pauseDialog);
    addEventListener('token-refused', refused);
    return () => removeEventListener('token-refused', refused);
  }, []);

  function logIn() {
    setLoggedIn(true);
    resumeDialog();
  }

  if (!isLoggedIn) return html`<${LogIn} why=${why} onDone=${logIn} />`;
  return html`<${Console} onLogOut=${() => logOut('You are logged out.')} />`;
}

function Console({ onLogOut }: { onLogOut(): void }) {
  const route = useRoute();
  // The response never changes. The call is repeated because the first one may fail.
  const { value: caller } = usePolled<CallerAnswer>('/whoami', 60_000);
  noteCaller(caller);
  const main = useRef<HTMLElement>(null);
  const isFirst = useRef(true);
  const place = `${route.page} ${route.query.get('id') ?? ''}`;
  const title = TITLES[route.page];

  // Screen readers and the keyboard continue at the new page.
  useEffect(() => {
    document.title = `${title} – animal store gateway`;
    if (!isFirst.current) main.current?.focus();
    isFirst.current = false;
  }, [place, title]);

  const View = VIEWS[route.page];
  return html`
    <div class="console">
      <a class="skip unseen" href="#main">Skip to content</a>
      <header class="top">
        <a class="brand" href="/">Animal store gateway</a>
        <${Finder} />
        ${caller !== undefined && html`<span class="who note">${caller.name ?? 'Shared token'}, ${roleInWords(caller.role)}</span>`}
        <button type="button" class="quiet" onClick=${onLogOut}>Log out</button>
      </header>
      <nav aria-label="Pages">
        <ul class="plain">
          ${Object.entries(MENU).map(([page, name]) => html`<li><a href=${addressOf(page as PageName)} aria-current=${isIn(page, route.page) ? 'page' : undefined}>${name}</a></li>`)}
        </ul>
        <${StateOfGateway} />
        ${isZoneUnknown() && html`<p class="note">This browser reports no time zone. Times are in UTC.</p>`}
      </nav>
      <main id="main" tabindex="-1" ref=${main}>
        <${View} key=${place} route=${route} />
      </main>
    </div>
  `;
}

const isIn = (page: string, shown: PageName): boolean => page === (shown === 'key' ? 'keys' : shown);

/** Shows the state of the gateway on every page and, if something is wrong, since when. */
function StateOfGateway() {
  const { value } = usePolled<TrafficAnswer>('/traffic', 1_000);
  const { kind, title, text, since } = stateOf(value, useTrouble());
  return html`
    <div id="state" class=${`state ${kind}`} role="status">
      <strong>${title}</strong>
      ${text !== '' && html`<span>${text}</span>`}
      ${since !== undefined && html`<span>Since ${clock(since)}, ${relative(since)}.</span>`}
    </div>
  `;
}

interface State {
  readonly kind: 'good' | 'warning' | 'bad';
  readonly title: string;
  readonly text: string;
  readonly since?: string | undefined;
}

function stateOf(traffic: TrafficAnswer | undefined, found: Trouble | undefined): State {
  const bad = (title: string, text: string, since: string | undefined): State => ({ kind: 'bad', title, text, since });
  const warning = (title: string): State => ({ kind: 'warning', title, text: 'See Health.' });
  const since = found?.since.toISOString();
  if (found?.kind === 'silent')
    return bad('No response', 'The gateway does not respond. The data on this page is out of date.', since);
  if (traffic?.mode === 'local') {
    const text =
      'Decisions are local. This gateway uses the last known data, and keys that it has not seen since their last change get 503.';
    return bad('Redis is unavailable', text, traffic.modeSince);
  }
  if (found?.kind === 'unreadable')
    return bad('Data cannot be read', `${found.why} The data on this page is out of date.`, since);
  if (traffic === undefined) return { kind: 'good', title: 'Loading …', text: '' };
  const { planTable, workers, findings } = traffic;
  // Each rejected plan value is a finding. If there are no others, the banner shows the number of rejected values.
  const { rejectedValues } = planTable;
  const worst = findings.find(({ about }) => about !== 'plan table' || rejectedValues === 0);
  if (worst === undefined) {
    if (rejectedValues > 0) return warning(`${counted(rejectedValues, 'plan value')} not in force`);
    if (workers !== undefined && workers.serving < workers.wanted)
      return warning(`${workers.serving} of ${workers.wanted} workers running`);
    return { kind: 'good', title: 'All well', text: limitsInWords(planTable) };
  }
  const { about, status, found: what, since: from } = worst;
  const more = findings.length === 1 ? '' : ` ${counted(findings.length - 1, 'more finding')}: see Health.`;
  const text = `${/^(are|have|were) /.test(what) ? 'They' : 'It'} ${what.replace(/\.$/, '')}.${more}`;
  if (status !== 'unknown') return bad(upperFirst(about), text, from);
  return { kind: 'warning', title: `Unknown: ${about}`, text, since: from };
}

const LIST = new Intl.ListFormat('en-GB');

function limitsInWords({ shadowPlans }: TrafficAnswer['planTable']): string {
  const names = LIST.format(shadowPlans.map(planInWords));
  if (shadowPlans.length === 0) return 'Every limit is exact.';
  return shadowPlans.length === 1
    ? `The plan ${names} is in shadow mode and refuses nothing.`
    : `The plans ${names} are in shadow mode and refuse nothing.`;
}

/** Finds a key by name, id or whole key, or a request by its id, from any page. `/` moves the focus here. */
function Finder() {
  const input = useRef<HTMLInputElement>(null);
  const [fault, setFault] = useState('');

  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.key !== '/' || event.ctrlKey || event.metaKey || isTyping(event.target)) return;
      event.preventDefault();
      input.current?.focus();
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, []);

  async function submit(event: SubmitEvent) {
    event.preventDefault();
    const { text } = searchText(input.current?.value ?? '');
    if (input.current !== null) input.current.value = text;
    if (text === '') return;
    setFault('');
    try {
      navigate(await addressFor(text));
    } catch (thrown) {
      setFault((thrown as Error).message);
    }
  }

  // A pasted key must not stay on the screen. A typed key is complete only when the search starts, which removes it.
  function drop(event: InputEvent) {
    if (event.data?.length === 1) return;
    const field = event.target as HTMLInputElement;
    const { text } = searchText(field.value);
    if (text !== field.value.trim()) field.value = text;
  }

  return html`
    <form class="finder bar" role="search" onSubmit=${submit}>
      <label class="unseen" for="find">Find a key by name, id or whole key, or a request by its id</label>
      <input id="find" ref=${input} type="search" autocomplete="off" spellcheck=${false}
        placeholder="Find by name, id, key or request id" aria-describedby="find-fault" onInput=${drop} />
      <button type="submit">Find</button>
      <span id="find-fault" class="fault" role="alert">${fault}</span>
    </form>
  `;
}

/** The address of the only key found, otherwise of the list. A request without a valid key has no key to open. */
async function addressFor(text: string): Promise<string> {
  const { keys, next } = await bodyOf<FoundAnswer>(`/keys/find?text=${encodeURIComponent(text)}`);
  const [only, ...others] = keys;
  if (only?.foundBy === 'request' || (only === undefined && next === undefined && (await isOfRequest(text))))
    return addressOf('requests', { q: text });
  if (only !== undefined && others.length === 0 && next === undefined) return addressOf('key', { id: only.id });
  return `${addressOf('keys')}?find=${encodeURIComponent(text)}`;
}

async function isOfRequest(text: string): Promise<boolean> {
  const { requests } = await bodyOf<RequestsAnswer>(`/requests?limit=1&q=${encodeURIComponent(text)}`);
  return requests.length > 0;
}

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.matches('input, select, textarea') || target.closest('dialog') !== null);

function NowherePage() {
  return html`
    <h1>There is no such page</h1>
    <p><a href="/">Go to the overview</a></p>
  `;
}

followLinks();
render(html`<${App} />`, document.querySelector('#app') as Element);
