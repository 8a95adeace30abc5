/**
 * The names in audit entries and the roles of operators' tokens, with their labels in the console. The console's page
 * loads this file too, so it imports nothing.
 */

/** What operators do to keys, secrets, bans, plans and tokens. */
export const ACTION_WORDS = {
  'key.create': 'Key created',
  'key.change': 'Key changed',
  'key.reset': 'Limits reset',
  'key.rotate': 'Key rotated',
  'key.revoke': 'Key revoked',
  'key.restore': 'Key restored from a backup',
  'key.reindex': 'List of keys rebuilt',
  'backup.make': 'Backup made',
  'secret.create': 'Secret added',
  'secret.change': 'Secret changed',
  'secret.revoke': 'Secret revoked',
  'ban.set': 'Key banned',
  'ban.lift': 'Ban lifted',
  'plan.change': 'Plan changed',
  'token.create': 'Token created',
  'token.revoke': 'Token revoked',
} as const;

export type Action = keyof typeof ACTION_WORDS;
export const ACTIONS = Object.keys(ACTION_WORDS) as [Action, ...Action[]];

/**
 * 'by hand': an edit to the plan table or to a key that was not made through a gateway. 'gateway': made by a gateway
 * itself.
 */
export const VIA_WORDS = {
  console: 'Console',
  cli: 'CLI',
  api: 'API',
  'by hand': 'By hand, in Redis',
  gateway: 'Gateway',
} as const;

type Via = keyof typeof VIA_WORDS;
export const VIAS = Object.keys(VIA_WORDS) as [Via, ...Via[]];

/** What operators' tokens may do. Each role can do what the ones before it can. */
export const ROLE_WORDS = {
  viewer: 'Viewer: reads everything, changes nothing',
  operator: 'Operator: changes keys, plans and bans',
  admin: 'Admin: also creates and revokes tokens, and restores backups',
} as const;

export type Role = keyof typeof ROLE_WORDS;
export const ROLES = Object.keys(ROLE_WORDS) as [Role, ...Role[]];

/** Whether a role has the rights of another. No role has the rights of one that does not exist. */
export const includesRole = (role: Role, needed: Role): boolean =>
  ROLES.slice(0, ROLES.indexOf(role) + 1).includes(needed);

/** The role that a request needs: viewer to read and operator for all else, unless the operation needs another one. */
export const roleFor = (method: string, needs?: Role): Role => needs ?? (method === 'GET' ? 'viewer' : 'operator');
