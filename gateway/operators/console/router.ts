import { useEffect, useState } from 'preact/hooks';
import { type PageName, TITLES } from './page-names.ts';

/** The URLs of the pages. Each can be reloaded, and sent to a colleague. */

export interface Route {
  readonly page: PageName;
  readonly query: URLSearchParams;
}

/** @param address path and query */
export function routeOf(address: string): Route {
  const { pathname, searchParams: query } = new URL(address, 'http://console');
  const name = pathname === '/' ? 'overview' : pathname.replace(/^\/console\//, '');
  return { page: Object.hasOwn(TITLES, name) ? (name as PageName) : 'nowhere', query };
}

/** @param how `replace` for a change of filters, so that the browser's Back leaves the page */
export function navigate(to: string, how: 'push' | 'replace' = 'push'): void {
  if (how === 'push') history.pushState(undefined, '', to);
  else history.replaceState(undefined, '', to);
  dispatchEvent(new Event('popstate'));
  if (how === 'push') scrollTo(0, 0);
}

const here = (): string => location.pathname + location.search;

/** Returns the current route, and renders again when it changes. */
export function useRoute(): Route {
  const [address, setAddress] = useState(here());
  useEffect(() => {
    const update = () => setAddress(here());
    addEventListener('popstate', update);
    return () => removeEventListener('popstate', update);
  }, []);
  return routeOf(address);
}

/** Follows links within the console without a reload. Other clicks, such as Ctrl-click, are left to the browser. */
export function followLinks(): void {
  document.addEventListener('click', (event) => {
    const link = event.target instanceof Element ? event.target.closest('a') : null;
    if (link === null || event.defaultPrevented || event.button !== 0 || link.target !== '') return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    if (link.origin !== location.origin || link.getAttribute('href')?.startsWith('#')) return;
    if (routeOf(link.pathname).page === 'nowhere') return;
    event.preventDefault();
    navigate(link.pathname + link.search);
  });
}
