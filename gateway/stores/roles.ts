/** What operators' tokens may do. The console's page loads this file too, so it imports nothing. */

/** Each can do what the ones before it can; and its words in the console. */
export const ROLE_WORDS = {
  viewer: 'Viewer: reads everything, changes nothing',
  operator: 'Operator: changes keys, plans and bans',
  admin: 'Admin: gives and ends access, too',
} as const;

export type Role = keyof typeof ROLE_WORDS;
export const ROLES = Object.keys(ROLE_WORDS) as [Role, ...Role[]];

/** Whether a role has the rights of another. None has those of a role that does not exist. */
export const includesRole = (role: Role, needed: Role): boolean =>
  ROLES.slice(0, ROLES.indexOf(role) + 1).includes(needed);

/** Reading needs a viewer, anything else an operator, unless an operation says otherwise. */
export const roleFor = (method: string, needs?: Role): Role => needs ?? (method === 'GET' ? 'viewer' : 'operator');
