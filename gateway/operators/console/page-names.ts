/** The names of pages in URLs, and their titles. The gateway loads this file too, so it imports nothing. */

/** The pages in the menu, in order. */
export const MENU = {
  overview: 'Overview',
  keys: 'Keys',
  requests: 'Requests',
  usage: 'Usage',
  plans: 'Plans',
  bans: 'Bans',
  activity: 'Audit log',
  access: 'Access',
  health: 'Health',
} as const;

export const TITLES = { ...MENU, key: 'Key', nowhere: 'No such page' } as const;

export type PageName = keyof typeof TITLES;

/** @param filters by their names in the admin API */
export function addressOf(page: PageName, filters: Readonly<Record<string, string>> = {}): string {
  const query = new URLSearchParams(filters);
  return (page === 'overview' ? '/' : `/console/${page}`) + (query.size === 0 ? '' : `?${query}`);
}
