import { text as textOf } from 'node:stream/consumers';
import type { Command } from 'commander';
import type { FoundAnswer, FoundKey } from '../api/answers.ts';
import { searchText } from '../search-text.ts';
import { AdminError } from './admin-client.ts';
import { describeFound, describeKey } from './key-text.ts';
import type { Session } from './session.ts';

/** The maximum number of keys that are shown. */
const MOST_FOUND = 100;
/** Keys, ids and log lines are shorter. */
const MOST_READ = 65_536;

/** Adds `keys find`. */
export function addFind(keys: Command, session: Session): void {
  const find = keys
    .command('find')
    .description('find a key by its name or part of it, its id, a request id, or the whole key')
    .argument('[text]', 'what to look for; default standard input')
    .addHelpText(
      'after',
      `
Only the id of a whole key is sent: its secret is dropped. Pass it on standard input to keep it out of process lists and
shell history. A line of the access log stands for the key in it. A request id is looked up in the last decisions of this gateway.

Examples:
  ctl keys find acme
  ctl keys find 1d9d2e71-70ef-42a0-853b-af79a5ee6eab
  ctl keys find                  asks for it on a terminal
  wl-paste | ctl keys find       a key that a customer has sent`,
    )
    .action(async (given: string | undefined) => {
      const { text, hadSecret } = searchText(given ?? (await read(session)));
      if (hadSecret && text === '')
        find.error('error: this looks like the secret of a key without its id. Nothing was sent.');
      if (text === '') find.error('error: pass a name, an id, a request id or a key.');
      if (hadSecret && given !== undefined)
        session.tell(
          'Note: the secret was dropped and not sent. It may be in your shell history: next time, use standard input.',
        );
      const found = await search(session, text);
      session.print({ keys: found }, () => {
        const [only] = found;
        return found.length === 1 && only !== undefined ? describeKey(only) : describeFound(found);
      });
    });
}

/** Asks on a terminal, and otherwise reads standard input. */
async function read(session: Session): Promise<string> {
  if (process.stdin.isTTY) return await session.question('A name, an id, a request id or a key: ');
  return (await textOf(process.stdin)).slice(0, MOST_READ);
}

/** @throws {AdminError} if there is none */
async function search(session: Session, text: string): Promise<FoundKey[]> {
  const found = new Map<string, FoundKey>();
  for await (const { keys } of session.parts<FoundAnswer>('/keys/find', { text })) {
    for (const key of keys) found.set(key.id, key);
    if (found.size >= MOST_FOUND) break;
  }
  if (found.size > 0) return [...found.values()].slice(0, MOST_FOUND);
  throw new AdminError('not_found', 'No key has this id or name, and this gateway remembers no such request.', {
    status: 404,
  });
}
