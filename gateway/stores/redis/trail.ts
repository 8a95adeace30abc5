import { readFileSync } from 'node:fs';
import { pairsOf } from '../../../shared/lists.ts';
import { ACTIVITY_LENGTH, type Activity, LOOKED_BACK } from '../activity-entry.ts';
import { orUnavailable, type RedisConnection } from './calls.ts';
import { isCluster } from './cluster.ts';
import { settle } from './settle.ts';

/**
 * Writes together with what tells them: one script makes a change and adds its notes to streams. In a cluster the
 * streams are in other slots, so the notes follow in calls of their own, and a gateway that ends in between loses them.
 */

export const ACTIVITY = 'gateway:activity';

const ADD_NOTES = read('add-notes');
const NOTE = scriptWithNotes('note');

/** An entry for a stream. */
export interface Note {
  readonly stream: string;
  /** Entries that the stream keeps. */
  readonly length: number;
  /** Names and values, alternating. */
  readonly fields: readonly string[];
  /** Whether a repetition of the newest entry about the same target is left out. */
  readonly isOnce: boolean;
}

/** A note that could not be written although what it tells is done. */
export type LostNote = Note & { readonly why: string };

/** What a script replied, and the notes that it could not write. Undefined if it did nothing. */
type Noted = { readonly reply: unknown; readonly lost: readonly LostNote[] } | undefined;

/** Runs a script of `scriptWithNotes` with the notes of the write. */
export type RunScript = (
  script: string,
  keys: readonly string[],
  parameters: readonly (string | number)[],
) => Promise<Noted>;

interface TrailOptions {
  /** Entries of the activity that are kept. */
  readonly length?: number;
  /** Called with an entry of the activity that could not be written although what it tells is done. */
  readonly onLost?: OnLost;
}

type OnLost = (entry: Readonly<Record<string, string>>, why: string) => void;

export class Trail {
  readonly redis: RedisConnection;
  readonly #length: number;
  readonly #onLost: OnLost;

  constructor(redis: RedisConnection, { length = ACTIVITY_LENGTH, onLost = () => {} }: TrailOptions = {}) {
    this.redis = redis;
    this.#length = length;
    this.#onLost = onLost;
  }

  notesOf(entries: readonly (Activity | undefined)[]): Note[] {
    const given = entries.filter((entry) => entry !== undefined);
    return given.map((entry) => ({ stream: ACTIVITY, length: this.#length, fields: toFields(entry), isOnce: true }));
  }

  /**
   * Makes a write and its notes. If the answer of the write was lost, the stored data says whether it was made.
   * @param readBack returns undefined if the write was not made
   * @returns the reply, undefined if the write did nothing; and the notes that could not be written
   * @throws {StoreUnavailable} if the write was not made or its result is unknown
   */
  async write(
    notes: readonly Note[],
    make: (run: RunScript) => Promise<Noted>,
    readBack: () => Promise<unknown>,
  ): Promise<{ readonly reply: unknown; readonly lost: readonly LostNote[] }> {
    const isSpread = isCluster(this.redis);
    const found = async (): Promise<Noted> => {
      const reply = await readBack();
      return reply === undefined ? undefined : { reply, lost: [] };
    };
    const noted = await settle(make(this.#runWith(isSpread ? [] : notes)), found);
    if (noted === undefined) return { reply: undefined, lost: [] };
    const lost = isSpread ? await this.#follow(notes) : noted.lost;
    this.#report(lost);
    return { reply: noted.reply, lost };
  }

  /** Adds notes about something that was done already. */
  async note(notes: readonly Note[]): Promise<void> {
    this.#report(await this.#follow(notes));
  }

  #report(lost: readonly LostNote[]): void {
    for (const { stream, fields, why } of lost)
      if (stream === ACTIVITY) this.#onLost(Object.fromEntries(pairsOf(fields)), why);
  }

  /** @returns the notes that could not be written */
  async #follow(notes: readonly Note[]): Promise<LostNote[]> {
    const lost: LostNote[] = [];
    for (const note of notes) {
      const add = async () => lost.push(...((await this.#runWith([note])(NOTE, [], []))?.lost ?? []));
      const lose = (fault: Error) => lost.push({ ...note, why: fault.message });
      // Only a note that is written once can be sent again.
      await add().catch((fault: Error) => (note.isOnce ? add().catch(lose) : lose(fault)));
    }
    return lost;
  }

  #runWith(notes: readonly Note[]): RunScript {
    return async (script, keys, parameters) => {
      const all = [...keys, ...notes.map(({ stream }) => stream)];
      const added = notes.map(({ length, fields, isOnce }, at) => ({
        key: keys.length + at + 1,
        length: String(length),
        fields,
        look_back: isOnce && String(LOOKED_BACK),
      }));
      const answer = await orUnavailable(
        this.redis.eval(script, all.length, ...all, JSON.stringify(added), ...parameters) as Promise<Answer | null>,
      );
      if (answer === null) return undefined;
      const [reply, lost] = answer;
      return { reply, lost: lost.map(([at, why]) => ({ ...(notes[at] as Note), why })) };
    };
  }
}

type Answer = [reply: unknown, lost: [place: number, why: string][]];

/** The text of a script that calls `add_notes`: its first line, add-notes.lua, and the rest. */
export function scriptWithNotes(name: string): string {
  const text = read(name);
  const end = text.indexOf('\n') + 1;
  return text.slice(0, end) + ADD_NOTES + text.slice(end);
}

function read(name: string): string {
  return readFileSync(new URL(`./${name}.lua`, import.meta.url), 'utf8');
}

function toFields({ changes, ...entry }: Activity): string[] {
  const given = Object.entries(entry).filter((field): field is [string, string] => field[1] !== undefined);
  return [...given.flat(), 'changes', JSON.stringify(changes)];
}
