import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { canRepeat, LOOKED_BACK, REPEATED_MS, readJson } from '../audit.ts';
import {
  type Change,
  type FieldChanges,
  type KeyCursor,
  keyIdOf,
  LOG_LENGTHS,
  type LogEntry,
  type LogLengths,
  type LogName,
  NotMade,
  type Part,
  type RecordName,
  Unknown,
} from '../storage.ts';
import { inWords, isOutOfMemory, keyOf, orUnavailable, type RedisConnection, refusalIn } from './calls.ts';
import { isCluster, nodeOf, serverOf } from './connection.ts';

/**
 * Applies one step in Redis: runs change.lua, and finds out what happened if its reply was lost. Redis keeps a mark of
 * each step under a random id, so a step can be sent again. A call has a deadline by the Redis clock, because TCP may
 * deliver it long after the gateway closed its connection. So after the deadline, a step with an unknown outcome either
 * has been applied or never will be.
 */

const TEXT = readFileSync(new URL('./change.lua', import.meta.url), 'utf8');
const URGENT = TEXT.replace('#!lua', '#!lua flags=allow-oom');
/** A script in place of the TIME command, because a cluster routes the script to the same node as the change. */
const CLOCK = "return redis.call('TIME')";

/** A mark is kept for longer than its step is repeated. */
const MARK_SECONDS = 60;
/** The mark of a moved entry is kept longer: if this gateway stops, another one may try to move the entry again. */
const MOVED_SECONDS = 86_400;

/**
 * After a lost reply, the step is repeated for this long, so that Redis can fail over or become reachable again. Once
 * this time has passed since a change was sent, Redis no longer applies it.
 */
const ASKED_MS = 4_000;
const ASK_EVERY_MS = 100;

interface Step {
  /** The part that the names of all keys in the step share. */
  readonly tag: string;
  readonly id: string;
  readonly parts: readonly Part[];
  /** The place of a new key in the index; undefined if there is no new key or it already has a place. */
  readonly place?: KeyCursor | undefined;
  readonly entries: readonly StepEntry[];
  readonly isUrgent?: boolean | undefined;
  readonly markSeconds?: number;
}

/** An entry as change.lua expects it: fields for a stream, or a string for an outbox. */
interface StepEntry {
  readonly name: string;
  readonly [more: string]: unknown;
}

type Reply = readonly [outcome: number, lost: readonly (readonly [place: number, why: string])[]];

export const newId = (): string => randomBytes(12).toString('base64url');

/**
 * @returns whether the step was applied, which is false if a record is not as required; the places of entries that
 *   could not be added, each with the reason; and whether Redis is full
 * @throws {NotMade} if the step was not applied and will not be
 * @throws {Unknown} if the reply was lost and Redis does not answer for 4 s
 */
export async function take(redis: RedisConnection, step: Step) {
  const call = callOf(redis, step, await latestFor(redis, step));
  let script = TEXT;
  const send = async (again: '' | '1'): Promise<Reply> => {
    try {
      return await call(script, again);
    } catch (fault) {
      // The memory limit does not stop an urgent step, but it does stop decisions.
      if (step.isUrgent !== true || !isOutOfMemory(fault as Error)) throw fault;
      script = URGENT;
      return await call(script, again);
    }
  };
  const outcomeOf = ([outcome, lost]: Reply) => {
    if (outcome < 0) throw new NotMade('Redis did not answer in time.');
    return { isMade: outcome === 1, lost, wasFull: script === URGENT };
  };
  try {
    return outcomeOf(await send(''));
  } catch (fault) {
    if (fault instanceof NotMade) throw fault;
    // Only this part of the message is safe to log: the rest contains the command.
    const reason = `Redis failed: ${inWords((fault as Error).message).split(', with args')[0]}`;
    const why = refusalIn(fault as Error);
    if (why !== undefined) throw new NotMade(why, reason);
    return outcomeOf(await untilAnswered(() => send('1'), reason));
  }
}

interface ReadClock {
  /** By this process's clock, in milliseconds. */
  readonly readAt: number;
  /** By the Redis clock, in microseconds. */
  readonly time: number;
}

/** A node's clock is read again after this time. */
const CLOCK_MS = 1_000;
/** The Redis clock or, on a cluster, the clock of each node. */
const clocks = new WeakMap<RedisConnection, Map<string, ReadClock>>();

/** The deadline of a step that is sent now, by the clock of the node that applies it. @throws {NotMade} */
async function latestFor(redis: RedisConnection, { tag, id }: Step): Promise<number> {
  const read = clocks.get(redis) ?? new Map<string, ReadClock>();
  clocks.set(redis, read);
  const node = isCluster(redis) ? nodeOf(redis, tag) : '';
  let clock = read.get(node);
  if (clock === undefined || performance.now() - clock.readAt > CLOCK_MS) {
    clock = { time: await clockOf(redis, markOf(tag, id)), readAt: performance.now() };
    read.set(node, clock);
  }
  return clock.time + (performance.now() - clock.readAt + ASKED_MS) * 1_000;
}

/** Converts the reply of TIME. */
export const inMicroseconds = ([seconds = 0, microseconds = 0]: readonly (number | string)[]): number =>
  Number(seconds) * 1e6 + Number(microseconds);

async function clockOf(redis: RedisConnection, key: string): Promise<number> {
  try {
    return inMicroseconds((await redis.eval(CLOCK, 1, key)) as [string, string]);
  } catch (fault) {
    const { message } = fault as Error;
    throw new NotMade(
      refusalIn(fault as Error) ?? `${serverOf(redis, key)()} does not answer.`,
      `Redis failed: ${inWords(message)}`,
    );
  }
}

function callOf(redis: RedisConnection, step: Step, latest: number) {
  const { tag, id, parts, place, entries, markSeconds = MARK_SECONDS } = step;
  const keys = [markOf(tag, id)];
  const at = (name: string): number => keys.indexOf(name) + 1 || keys.push(name);
  const change = {
    parts: parts.flatMap(inHashes).map(({ name, exists, expect = {}, set = {}, moveTo, keyId }) => ({
      key: at(name),
      exists,
      expect: Object.entries(expect).flatMap(([field, text]) => (isExact(field, text) ? [[field, text ?? false]] : [])),
      set: Object.entries(set).flatMap(([field, text]) => (text === undefined ? [] : [field, text])),
      remove: Object.keys(set).filter((field) => set[field] === undefined),
      ...(moveTo &&
        keyId !== undefined && {
          to: at(nameOf(moveTo.record)),
          mark: moveTo.mark ?? 'revoked',
          seconds: moveTo.seconds,
          fields: moveTo.fields.map((field) => [field, at(hashOf(keyId, field))]),
          beside: hashesBeside(keyId).map(at),
        }),
    })),
    index: place && { key: at(INDEX), score: String(place.createdAt), id: place.id },
    entries: entries.map(({ name, ...entry }) => ({ key: at(name), ...entry })),
  };
  const text = JSON.stringify(change, (_, value) => (typeof value === 'string' ? value.toWellFormed() : value));
  return (script: string, again: '' | '1') =>
    redis.eval(script, keys.length, ...keys, text, markSeconds, again, latest) as Promise<Reply>;
}

/**
 * A key is stored in several hashes. If a key with this id was deleted by hand, a new one inherits nothing from its
 * hashes.
 */
function inHashes({ record, ...part }: Part): (Omit<Part, 'record'> & { name: string; keyId?: string })[] {
  const id = keyIdOf(record);
  if (id === undefined) return [{ name: nameOf(record), ...part }];
  const { expect = {}, set = {} } = part;
  const isNew = part.exists === false && part.set !== undefined;
  const none = isNew ? ['usage_minutes', 'usage_days', ...TAG_FIELDS].map((field) => [field, undefined]) : [];
  const all: FieldChanges = { ...Object.fromEntries(none), ...set };
  const inOne = (name: string) => ({ name, expect: fieldsIn(name, id, expect), set: fieldsIn(name, id, all) });
  const beside = hashesBeside(id).map(inOne);
  const changed = beside.filter((one) => Object.keys({ ...one.expect, ...one.set }).length > 0);
  return [{ ...part, ...inOne(keyOf(id)), keyId: id }, ...changed];
}

/** U+FFFD replaces a byte that is not UTF-8, so such a value cannot be compared. */
const isExact = (field: string, text: string | undefined): boolean => !`${field}${text}`.includes('\uFFFD');

/** @param length the number of entries that the stream keeps */
export function streamEntry(entry: LogEntry, length: number): StepEntry {
  const once = canRepeat(entry) && { look_back: String(LOOKED_BACK), within: REPEATED_MS };
  const { log, fields } = entry;
  return { name: STREAMS[log], length: String(length), fields: Object.entries(fields).flat(), ...once };
}

async function untilAnswered<T>(ask: () => Promise<T>, reason: string): Promise<T> {
  const giveUpAt = performance.now() + ASKED_MS;
  for (let leftMs = ASKED_MS; leftMs > 0; leftMs = giveUpAt - performance.now()) {
    const answer = await Promise.race([ask().catch(() => undefined), sleep(leftMs, undefined, { ref: false })]);
    if (answer !== undefined) return answer;
    await sleep(ASK_EVERY_MS);
  }
  throw new Unknown(reason);
}

/** The age in milliseconds from which an announcement counts as left behind by its gateway. */
const LEFT_BEHIND_MS = 5_000;

/** The id of an entry marks it as moved, so that it is not added twice. */
const Waiting = z.object({
  id: z.string(),
  log: z.literal(Object.keys(LOG_LENGTHS) as LogName[]),
  fields: z.record(z.string(), z.string()),
});

export type OnLost = NonNullable<Change['onLost']>;

export type Announced = Pick<Step, 'tag' | 'id'>;

const announcement = ({ tag, id }: Announced): string => `${id} ${tag}`;

export const outboxEntries = (entries: readonly LogEntry[], { tag, id }: Announced): StepEntry[] =>
  entries.map(({ log, fields }, at) => ({
    name: outboxOf(tag),
    text: JSON.stringify({ id: `${id}.${at}`, log, fields } satisfies z.infer<typeof Waiting>),
  }));

/**
 * Entries on a cluster, where a stream is in a different slot from the change. A change is first announced in a set. In
 * one step, it then changes its record and writes its entries to a list in the same slot, from which they are moved. If
 * a gateway stops in between, others find its entries, and can remove the place of a key that was not issued.
 * @param forget removes the place of a key that does not exist
 */
export function outboxes(
  redis: RedisConnection,
  lengths: LogLengths,
  forget: (tag: string) => Promise<void>,
  leftBehindMs = LEFT_BEHIND_MS,
) {
  /** When this gateway first saw each announcement, by its own clock. */
  let seen = new Map<string, number>();

  const announce = (change: Announced) => orUnavailable(redis.sadd(OUTBOXES, announcement(change)));

  /** Moves the entries of a change that was applied, or that can no longer be applied. */
  async function empty(change: Announced, onLost: OnLost): Promise<void> {
    const outbox = outboxOf(change.tag);
    for (const text of await orUnavailable(redis.lrange(outbox, 0, -1))) {
      // A string put there by hand is not an entry.
      const entry = readJson(Waiting, text);
      if (entry !== undefined) await move({ log: entry.log, fields: entry.fields }, entry.id, onLost);
      await orUnavailable(redis.lrem(outbox, 1, text));
    }
    await orUnavailable(redis.srem(OUTBOXES, announcement(change)));
  }

  /** Adds an entry to its stream, unless it was added under this id before. */
  async function move(entry: LogEntry, id: string, onLost: OnLost): Promise<void> {
    const entries = [streamEntry(entry, lengths[entry.log])];
    const step = { tag: STREAMS[entry.log], id, parts: [], entries, markSeconds: MOVED_SECONDS };
    for (const [, why] of (await take(redis, step)).lost) onLost(entry, why);
  }

  /** Moves the entries of gateways that have stopped. */
  async function emptyLeftBehind(onLost: OnLost): Promise<void> {
    const announced = await orUnavailable(redis.smembers(OUTBOXES));
    const now = performance.now();
    seen = new Map(announced.map((text) => [text, seen.get(text) ?? now]));
    for (const [text, since] of seen) {
      // The next outbox may be on another node, so a failure does not stop the loop.
      if (now - since >= leftBehindMs) await takeOver(text, onLost).catch(() => undefined);
    }
  }

  /** Cancels the change unless it was already applied, because it must not be applied without an announcement. */
  async function takeOver(text: string, onLost: OnLost): Promise<void> {
    const [id = '', tag] = text.split(' ');
    if (tag === undefined) return void (await orUnavailable(redis.srem(OUTBOXES, text)));
    await orUnavailable(redis.set(markOf(tag, id), 'cancelled', 'EX', MARK_SECONDS, 'NX'));
    await forget(tag);
    await empty({ tag, id }, onLost);
  }

  return { announce, empty, emptyLeftBehind };
}

// Names in Redis. All names in one step share a tag (a key's id, or a table's name), and so one slot of a cluster.

/** Ids by time of creation in Unix seconds: one set for existing keys, and one for those revoked recently. */
export const INDEX = 'gateway:keys';
export const REVOKED_INDEX = 'gateway:keys:revoked';

export const STREAMS: Readonly<Record<LogName, string>> = {
  audit: 'gateway:activity',
  'plan history': 'gateway:plans:history',
  bans: 'gateway:bans',
};

/** A key's usage marks, which are long and seldom needed. They expire once all of them are too old. */
const marksOf = (id: string): string => `gateway:marks:{${id}}`;

/** A key's tags, as people type them. Decisions do not read them. */
const tagsOf = (id: string): string => `gateway:tags:{${id}}`;

const TAG_FIELDS = ['tags', 'ok_tags'] as const;

/** The other Redis hashes of a key. They keep its main hash small, because every decision reads that hash. */
export const hashesBeside = (id: string): string[] => [marksOf(id), tagsOf(id)];

/** The name of the Redis hash that contains a field of a key. */
function hashOf(id: string, field: string): string {
  if (field.startsWith('usage_')) return marksOf(id);
  return TAG_FIELDS.some((one) => one === field) ? tagsOf(id) : keyOf(id);
}

/**
 * The fields of a key that belong in the Redis hash `name`. Fields that people typed into the wrong hash have no
 * meaning.
 */
export const fieldsIn = <Value>(name: string, id: string, fields: Readonly<Record<string, Value>>) =>
  Object.fromEntries(Object.entries(fields).filter(([field]) => hashOf(id, field) === name));

/** What remains of a revoked key. */
export const usageOf = (id: string): string => `gateway:usage:{${id}}`;

export function nameOf(record: RecordName): string {
  const [, kind, id = ''] = /^(key|revoked):(.*)$/s.exec(record) ?? [];
  if (kind !== undefined) return kind === 'key' ? keyOf(id) : usageOf(id);
  return record === 'plans:kept' ? 'gateway:kept:{gateway:plans}' : `gateway:${record}`;
}

export const tagOf = (record: RecordName): string => /\{(.*)\}$/.exec(nameOf(record))?.[1] ?? nameOf(record);

/** The mark of a change that was applied or cancelled. It expires. */
const markOf = (tag: string, id: string): string => `gateway:change:{${tag}}:${id}`;

/** On a cluster, the entries that still have to be moved to their streams. */
const outboxOf = (tag: string): string => `gateway:outbox:{${tag}}`;
/** A set of the changes that may have left entries in an outbox. */
const OUTBOXES = 'gateway:outboxes';

/** Whether a name holds temporary state of changes and gateways rather than data. */
export const isPassing = (name: string): boolean =>
  /^gateway:(change:|outbox|gateways$|questions:|answers:|bans$)/.test(name);
