import { isSameName } from '../clients.ts';
import { AdminError } from './admin-client.ts';
import type { Session } from './session.ts';
import { type Column, harmless, table } from './text.ts';

/** Finds the key, secret or token that a command is about, by its id or its name. */

export interface Named {
  readonly id: string;
  readonly name: string;
}

/** Keys, secrets or tokens. */
export interface Kind<T extends Named> {
  /** The singular, such as `key`. */
  readonly noun: string;
  readonly isId: (text: string) => boolean;
  /** Columns that help the operator to choose between several with the same name. */
  readonly columns: readonly Column<T>[];
}

export interface Found {
  readonly id: string;
  /** The text for prompts: the name and the id, or only the id of something that cannot be found or read. */
  readonly title: string;
}

export const found = ({ id, name }: Named): Found => ({ id, title: name === '' ? id : `${harmless(name)} (${id})` });

/** The maximum number of similar names to suggest if no name matches in full. */
const MOST_SHOWN = 5;

/**
 * Finds a key, secret or token by its id, or by its full name, ignoring case. If several have the name, the operator is
 * prompted for a choice. An unknown id is returned unchanged, so that the gateway reports the error, and so that a
 * revocation can be repeated.
 * @param all the candidates: at least those that have this id, or whose names contain the text
 * @param isForGood whether the action is irreversible. Text in the form of an id is then never read as a name, because
 *   the key, secret or token with that id may just have been revoked
 * @throws {AdminError} 404 if none has this name, or with the code `usage` if several have it and there is no terminal
 */
export async function findNamed<T extends Named>(
  session: Session,
  { noun, isId, columns }: Kind<T>,
  text: string,
  all: readonly T[],
  isForGood: boolean,
): Promise<Found> {
  const same = all.filter(({ name }) => isSameName(name, text));
  const given = all.find(({ id }) => id === text);
  if (given !== undefined) return found(given);
  if (isId(text) && (same.length === 0 || isForGood)) {
    for (const { id } of same)
      session.printNote(`Note: no ${noun} has the id ${text}, but it is the name of the ${noun} ${id}.`);
    return { id: text, title: text };
  }
  if (same.length === 0) {
    const names = all.map(({ name }) => name).filter((name) => name.toLowerCase().includes(text.toLowerCase()));
    const shown = harmless(names.slice(0, MOST_SHOWN).join(', '));
    const hint = names.length === 0 ? '' : ` These names contain it: ${shown}. Use the full name.`;
    throw new AdminError('not_found', `No ${noun} has the id or name “${harmless(text)}”.${hint}`, { status: 404 });
  }
  const named = same.length === 1 ? (same[0] as T) : await choose();
  session.printNote(`Note: ${harmless(named.name)} is ${named.id}.`);
  return found(named);

  async function choose(): Promise<T> {
    const list = table(same, [['', (one) => same.indexOf(one) + 1], 'id', ...columns]);
    const several = `${same.length} ${noun}s have the name “${harmless(text)}”`;
    if (!process.stdin.isTTY || session.isJson)
      throw new AdminError('usage', `${several}. Use the id of one:\n${list}`);
    session.printNote(`${several}:\n${list}`);
    const chosen = same[Number(await session.question(`Number of the ${noun}: `)) - 1];
    if (chosen === undefined) throw new AdminError('usage', `No ${noun} was chosen. Nothing was done.`);
    return chosen;
  }
}

/** Whether a string has the form of the id of a secret or a token. */
export const isShortId = (text: string): boolean => /^[0-9A-Za-z]{8}$/.test(text);
