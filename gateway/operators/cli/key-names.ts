import { isKeyId } from '../../limiter/credential.ts';
import type { KeysAnswer, KeyView } from '../api/answers.ts';
import { searchText } from '../search-text.ts';
import { AdminError } from './admin-client.ts';
import { pathOf } from './key-text.ts';
import type { Session } from './session.ts';
import { harmless, table } from './table.ts';
import { timeText } from './time-text.ts';

/** The argument of commands for one key, by its id or its name. */

export const KEY = 'the key: its id, as `keys list` shows it, or its whole name';

/** The number of similar names that are shown if only a part of a name was given. */
const MOST_SHOWN = 5;

/** The given name belongs to several keys, or to none. It is a fault of the command line. */
export class UnclearKey extends Error {}

export interface NamedKey {
  readonly id: string;
  /** The id, with the name if that was given, for use in questions. */
  readonly title: string;
}

export const pathTo = async (session: Session, given: string): Promise<string> =>
  pathOf((await findKey(session, given)).id);

/**
 * Finds a key by its id, or by its whole name in upper or lower case. If several have the name, it asks on a terminal.
 * An id that no key has is returned as it is: the listener answers for it, and a revocation can be repeated.
 * @throws {AdminError} 404 if no key has this name, {UnclearKey} if several have it and there is no terminal to ask on
 */
export async function findKey(session: Session, given: string): Promise<NamedKey> {
  const { text, hadSecret } = searchText(given);
  if (hadSecret) {
    if (text === '') throw new UnclearKey('This looks like the secret of a key without its id. Nothing was sent.');
    session.tell('Note: the secret was dropped and not sent. It may be in your shell history: next time, use the id.');
  }
  if (isKeyId(text) && (await exists(session, text))) return { id: text, title: text };
  const { same, others } = await named(session, text);
  if (same.length === 0 && isKeyId(text)) return { id: text, title: text };
  if (same.length === 0) throw noneNamed(text, others);
  const key = same.length === 1 ? (same[0] as KeyView) : await choose(session, text, same);
  session.tell(`Note: ${harmless(key.name)} is ${key.id}.`);
  return { id: key.id, title: `${harmless(key.name)} (${key.id})` };
}

/** Does the same for an action that needs confirmation. If that is not possible, no key is searched for. */
export const findToConfirm = async (session: Session, given: string): Promise<NamedKey> =>
  session.canConfirm ? await findKey(session, given) : { id: given, title: harmless(given) };

/** Whether there is a key with this id. */
async function exists(session: Session, id: string): Promise<boolean> {
  try {
    await session.call('GET', pathOf(id));
    return true;
  } catch (fault) {
    if (fault instanceof AdminError && fault.status === 404) return false;
    throw fault;
  }
}

/** Finds the keys with this name, and some others whose names contain it. */
async function named(session: Session, name: string): Promise<{ same: KeyView[]; others: KeyView[] }> {
  const held = await keysNamed(session, name);
  const isSame = (key: KeyView) => key.name.toLowerCase() === name.toLowerCase();
  return { same: held.filter(isSame), others: held.filter((key) => !isSame(key)).slice(0, MOST_SHOWN) };
}

/** Finds the keys whose names contain a text. */
async function keysNamed(session: Session, name: string): Promise<KeyView[]> {
  const found: KeyView[] = [];
  for await (const { keys } of session.parts<KeysAnswer>('/keys', { name })) found.push(...keys);
  return found;
}

function noneNamed(text: string, others: readonly KeyView[]): AdminError {
  const held = others.map(({ name }) => harmless(name)).join(', ');
  const hint = held === '' ? '' : ` These names contain it: ${held}. Use the whole name.`;
  return new AdminError('not_found', `No key has the id or name “${harmless(text)}”.${hint}`, { status: 404 });
}

async function choose(session: Session, name: string, same: readonly KeyView[]): Promise<KeyView> {
  const rows = same.map(({ id, plan, state, createdAt, lastUsedAt }, at) => [
    at + 1,
    id,
    plan,
    state,
    timeText(createdAt, process.stderr),
    lastUsedAt === undefined ? 'never' : timeText(lastUsedAt, process.stderr),
  ]);
  const list = table(['', 'id', 'plan', 'state', 'created', 'last used'], rows);
  if (!process.stdin.isTTY || session.isJson)
    throw new UnclearKey(`${same.length} keys have the name “${harmless(name)}”. Use the id of one:\n${list}`);
  session.tell(`${same.length} keys have the name “${harmless(name)}”:\n${list}`);
  const key = same[Number(await session.question('Number of the key: ')) - 1];
  if (key === undefined) throw new UnclearKey('No key was chosen. Nothing was done.');
  return key;
}
