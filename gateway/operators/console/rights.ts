import { createContext } from 'preact';
import { includesRole, ROLE_WORDS, ROLES, type Role } from '../../stores/words.ts';
import type { CallerAnswer } from '../api/answers.ts';

/** What the current token may do. The gateway checks it anyway. */

export { ROLE_WORDS, ROLES, type Role };

export const roleInWords = (role: string): string => ROLE_WORDS[role as Role]?.split(':')[0] ?? role;

/** Who is logged in; undefined until the gateway has answered. */
export const Caller = createContext<CallerAnswer | undefined>(undefined);

/** Why the caller may not do something; undefined if it may, or if that is unknown. */
export function refusal(caller: CallerAnswer | undefined, needs: Role): string | undefined {
  if (caller === undefined || includesRole(caller.role, needs)) return undefined;
  return `This needs the role ${roleInWords(needs)}. Your token has the role ${roleInWords(caller.role)}.`;
}

/** The id of the element with the reason, which all buttons share. */
export const idOfRefusal = (needs: Role): string => `needs-${needs}`;
