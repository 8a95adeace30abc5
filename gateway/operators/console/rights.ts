import { createContext } from 'preact';
import type { CallerAnswer } from '../api/answers.ts';

/** What the token that is logged in may do. The gateway checks it anyway. */

export type Role = CallerAnswer['role'];

/** From the fewest rights to the most, with what each may do. */
export const ROLES: readonly (readonly [Role, string])[] = [
  ['viewer', 'Viewer: reads everything, changes nothing'],
  ['operator', 'Operator: changes keys, plans and bans'],
  ['admin', 'Admin: gives and ends access, too'],
];

export const roleInWords = (role: string): string => ROLES.find(([name]) => name === role)?.[1].split(':')[0] ?? role;

/** Who is logged in; undefined until the gateway has told. */
export const Caller = createContext<CallerAnswer | undefined>(undefined);

const rank = (role: Role): number => ROLES.findIndex(([name]) => name === role);

/** Why the caller may not do it; undefined if it may, or if that is unknown. */
export function refusal(caller: CallerAnswer | undefined, needs: Role): string | undefined {
  if (caller === undefined || rank(caller.role) >= rank(needs)) return undefined;
  return `This needs the role ${roleInWords(needs)}. Your token has the role ${roleInWords(caller.role)}.`;
}

/** The id of the element that tells the reason, once for all buttons. */
export const idOfRefusal = (needs: Role): string => `needs-${needs}`;
