/** The names of pages in addresses, and their titles. The gateway loads this file too, so it imports nothing. */

/** The pages in the menu, in its order. */
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

export const addressOf = (page: PageName): string => (page === 'overview' ? '/' : `/console/${page}`);
