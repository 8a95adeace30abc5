import { isKeyId } from '../../limiter/credential.ts';
import type { KeysAnswer, KeyView } from '../api/answers.ts';
import { searchText } from '../search-text.ts';
import { AdminError } from './admin-client.ts';
import { pathOf } from './key-text.ts';
import type { Session } from './session.ts';
import { harmless, table } from './table.ts';
import { timeText } from './time-text.ts';

/** The key that a command is about, by its id or by its name. */

export const KEY = 'the key: its id, as `keys list` shows it, or its whole name';

/** Other names that are shown to somebody who gave only a part of one. */
const MOST_SHOWN = 5;

/** Several keys have the given name, or what was given is no name of a key. It is a fault of the command line. */
export class UnclearKey extends Error {}

export interface NamedKey {
  readonly id: string;
  /** For questions: the id, with the name if that was given. */
  readonly title: string;
}

export const pathTo = async (session: Session, given: string): Promise<string> =>
  pathOf((await findKey(session, given)).id);

/**
 * Finds a key by its id, or by its whole name in upper or lower case. If several have the name, it asks on a terminal.
 * An id that no key has is returned as it is: the listener answers for it, and a revocation can be repeated.
 * @throws {AdminError} 404 if no key has this name, {UnclearKey} if several have it and nobody can be asked
 */
export async function findKey(session: Session, given: string): Promise<NamedKey> {
  const { text, hadSecret } = searchText(given);
  if (hadSecret) {
    if (text === '')
      throw new UnclearKey('This looks like the secret of a key, without its beginning. Nothing was sent.');
    session.tell('Note: the secret was dropped and not sent. It may be in your history: next time, give the id.');
  }
  if (isKeyId(text) && (await exists(session, text))) return { id: text, title: text };
  const { same, others } = await named(session, text);
  if (same.length === 0 && isKeyId(text)) return { id: text, title: text };
  if (same.length === 0) throw noneNamed(text, others);
  const key = same.length === 1 ? (same[0] as KeyView) : await choose(session, text, same);
  session.tell(`Note: ${harmless(key.name)} is ${key.id}.`);
  return { id: key.id, title: `${harmless(key.name)} (${key.id})` };
}

/** The same for an action that is confirmed. If that is not possible, the key is not looked for. */
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

/** The keys with this name, and some others whose names hold it. */
async function named(session: Session, name: string): Promise<{ same: KeyView[]; others: KeyView[] }> {
  const held = await keysNamed(session, name);
  const isSame = (key: KeyView) => key.name.toLowerCase() === name.toLowerCase();
  return { same: held.filter(isSame), others: held.filter((key) => !isSame(key)).slice(0, MOST_SHOWN) };
}

/** The keys whose names hold a text. */
async function keysNamed(session: Session, name: string): Promise<KeyView[]> {
  const found: KeyView[] = [];
  for await (const { keys } of session.parts<KeysAnswer>('/keys', { name })) found.push(...keys);
  return found;
}

function noneNamed(text: string, others: readonly KeyView[]): AdminError {
  const held = others.map(({ name }) => harmless(name)).join(', ');
  const hint = held === '' ? '' : ` These names hold it: ${held}. Give the whole name.`;
  return new AdminError('not_found', `No key has the id or the name “${harmless(text)}”.${hint}`, { status: 404 });
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
    throw new UnclearKey(`${same.length} keys have the name “${harmless(name)}”. Give the id of one:\n${list}`);
  session.tell(`${same.length} keys have the name “${harmless(name)}”:\n${list}`);
  const key = same[Number(await session.question('Which one? Its number: ')) - 1];
  if (key === undefined) throw new UnclearKey('No key was chosen; nothing was done.');
  return key;
}
