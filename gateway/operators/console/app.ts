import { useEffect, useRef, useState } from 'preact/hooks';
import type { CallerAnswer } from '../api/answers.ts';
import { isZoneUnknown } from '../clients.ts';
import { forgetToken, get, keptToken } from './api.ts';
import { forgetAuthor } from './author.ts';
import { closeDialogs, DialogHost } from './dialog.ts';
import { type Content, html } from './html.ts';
import { addressOf, MENU, type PageName, TITLES } from './page-names.ts';
import { AccessPage } from './pages/access-page.ts';
import { AuditLogPage } from './pages/audit-log-page.ts';
import { BansPage } from './pages/bans-page.ts';
import { HealthPage } from './pages/health-page.ts';
import { KeyPage } from './pages/key-page.ts';
import { KeysPage } from './pages/keys-page.ts';
import { NowherePage } from './pages/nowhere-page.ts';
import { OverviewPage } from './pages/overview-page.ts';
import { PlansPage } from './pages/plans-page.ts';
import { RequestsPage } from './pages/requests-page.ts';
import { UsagePage } from './pages/usage-page.ts';
import { Refusals } from './parts/action-button.ts';
import { Finder } from './parts/finder.ts';
import { LogIn } from './parts/log-in.ts';
import { StateOfGateway } from './parts/state-of-gateway.ts';
import { usePolled } from './polled.ts';
import { Caller, roleInWords } from './rights.ts';
import { type Route, useRoute } from './router.ts';
import { Toasts } from './toast.ts';

/** The caller is polled only because the first call may fail. */
const CALLER_EVERY_MS = 60_000;

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

/** Logs in, shows the page of the address, and logs out. */
export function App() {
  const [isLoggedIn, setLoggedIn] = useState(keptToken() !== null);
  const [why, setWhy] = useState('');

  function logOut(reason: string) {
    forgetToken();
    forgetAuthor();
    closeDialogs();
    setWhy(reason);
    setLoggedIn(false);
  }

  useEffect(() => {
    const refused = () => logOut('The token is no longer accepted.');
    addEventListener('token-refused', refused);
    return () => removeEventListener('token-refused', refused);
  }, []);

  if (!isLoggedIn) return html`<${LogIn} why=${why} onDone=${() => setLoggedIn(true)} />`;
  return html`<${Console} onLogOut=${() => logOut('You are logged out.')} />`;
}

function Console({ onLogOut }: { onLogOut(): void }) {
  const route = useRoute();
  const { value: caller } = usePolled('caller', CALLER_EVERY_MS, async () => (await get<CallerAnswer>('/whoami')).body);
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
    <${Caller.Provider} value=${caller}>
    <div class="console">
      <a class="skip" href="#main">Skip to the content</a>
      <header class="top">
        <a class="brand" href="/"><span class="logo" aria-hidden="true"></span>Animal store gateway</a>
        <${Finder} />
        ${caller !== undefined && html`<span class="who note">${caller.name ?? 'Shared token'}, ${roleInWords(caller.role)}</span>`}
        <button type="button" class="quiet" onClick=${onLogOut}>Log out</button>
      </header>
      <nav aria-label="Pages">
        <ul>
          ${Object.entries(MENU).map(([page, name]) => html`<li><a href=${addressOf(page as PageName)} aria-current=${isIn(page, route.page) ? 'page' : undefined}>${name}</a></li>`)}
        </ul>
        <${StateOfGateway} />
        ${isZoneUnknown() && html`<p class="note">This browser knows no time zone. Times are in UTC.</p>`}
      </nav>
      <main id="main" tabindex="-1" ref=${main}>
        <${View} key=${place} route=${route} />
      </main>
      <${DialogHost} />
      <${Toasts} />
      <${Refusals} />
    </div>
    <//>
  `;
}

const isIn = (page: string, shown: PageName): boolean => page === (shown === 'key' ? 'keys' : shown);
