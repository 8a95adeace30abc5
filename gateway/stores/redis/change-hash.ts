import { pairsOf } from '../../../shared/lists.ts';
import type { Fields } from '../key-hash.ts';
import { type LostNote, type Note, scriptWithNotes, type Trail } from './trail.ts';

const CHANGE_HASH = scriptWithNotes('change-hash');

type Hash = Readonly<Record<string, string>>;

interface HashChange {
  /** A value for each field that matters; undefined if it must not exist. */
  readonly expected: Fields;
  /** Undefined removes a field. */
  readonly changes: Fields;
  readonly notes: readonly Note[];
  /** Reads the hash, if the answer was lost. */
  readonly read: () => Promise<Hash | undefined>;
}

/**
 * Checks that a hash is as expected, changes some of its fields and writes the notes, in one step.
 * @returns undefined if the hash is not as expected, and then nothing was changed; else the notes that were lost
 * @throws {StoreUnavailable} if the change was not made or its result is unknown
 */
export async function changeHash(
  trail: Trail,
  key: string,
  { expected, changes, notes, read }: HashChange,
): Promise<{ readonly lost: readonly LostNote[] } | undefined> {
  const expect = Object.fromEntries(Object.entries(expected).map(([field, value]) => [field, value ?? false]));
  const removed = Object.keys(changes).filter((field) => changes[field] === undefined);
  // JSON omits undefined values, so those fields are in `remove`.
  const change = { expect, set: changes, remove: Object.fromEntries(removed.map((field) => [field, true])) };
  const { reply, lost } = await trail.write(
    notes,
    (run) => run(CHANGE_HASH, [key], [JSON.stringify(change)]),
    async () => holds(await read(), changes),
  );
  return reply === undefined ? undefined : { lost };
}

/** The hash if it has these fields, and lacks those that are undefined; otherwise undefined. */
function holds(hash: Hash | undefined, fields: Fields): Hash | undefined {
  return hash !== undefined && Object.keys(fields).every((field) => hash[field] === fields[field]) ? hash : undefined;
}

/** Converts a flat list of fields and values, as scripts and streams return it. */
export const fromFlat = (flat: readonly string[]): Record<string, string> => Object.fromEntries(pairsOf(flat));
