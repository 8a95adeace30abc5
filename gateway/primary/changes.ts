import { randomUUID } from 'node:crypto';
import { z } from 'zod';
import { Unavailable } from '../../shared/domain-errors.ts';
import { repeat } from '../../shared/process/repeat.ts';
import { type CheckResult, fault, good } from '../check-result.ts';
import type { Clients } from '../limiter/clients.ts';
import { isKeyId } from '../limiter/credential.ts';
import { withFewUnknown } from '../limiter/plans.ts';
import { concernsDecisions } from '../stores/audit.ts';
import type { PlanCache } from '../stores/plan-cache.ts';
import {
  type Change,
  type Fields,
  keyIdOf,
  type LoggedEntry,
  type LogName,
  NotMade,
  OtherValue,
  type RecordName,
  SHORTEST_AUDIT_LOG,
  type Storage,
  type Unconfirmed,
  Unknown,
  withOwn,
} from '../stores/storage.ts';
import type { Changed } from './channel.ts';

export type Announce = (changed: Changed) => Promise<void>;

/** A change that may have been made: the records that processes must read again. */
const Made = z.object({ records: z.array(z.string() as z.ZodType<RecordName>), isReset: z.boolean() });
type Made = z.infer<typeof Made>;

/** What a gateway sends to the others. */
export const Notice = z.array(Made);

/** Makes this process act on a change. */
export function actOn(changed: Changed, clients: Clients, planCache: PlanCache | undefined): void {
  if ('key' in changed) clients.noteChange(changed.key, changed.isReset);
  else if ('anyKey' in changed) clients.doubtAll();
  else planCache?.take(changed.plans);
}

/**
 * Makes every worker of this gateway act on a change.
 * @param announce resolves when no worker acts on older data
 */
export const announceTo =
  (storage: Pick<Storage, 'read'>, announce: Announce) =>
  async ({ records, isReset }: Made): Promise<void> => {
    const announced = records.map(async (record) => {
      const key = keyIdOf(record);
      if (key !== undefined) return await announce(changedKey(key, isReset));
      // Workers receive the plans, because their connections to Redis may be slower than this one.
      const plans = await storage.read('plans').catch((cause) => Promise.reject(new Unknown(cause)));
      if (plans !== undefined) await announce({ plans: withFewUnknown(plans) });
    });
    await Promise.all(announced);
  };

/**
 * The operators' storage, which acknowledges a change once every worker acts on it, also those of other gateways.
 * @param announce makes the workers of this gateway act on a change
 * @param begin makes sure that a new store has a plan table before it gets a key, because the built-in plans are
 *   written only to an empty store
 * @param notify makes the other gateways act on a change
 */
export function confirmed(
  storage: Storage,
  announce: (made: Made) => Promise<void>,
  begin: () => Promise<void>,
  notify: (made: Made) => Promise<void> = async () => {},
): Storage {
  /**
   * The records that may have been changed. Reading one back acknowledges its change, so the change is announced first.
   */
  const doubtful = new Set<RecordName>();

  async function read(record: RecordName, isAcknowledgment = true) {
    const fields = await storage.read(record);
    if (isAcknowledgment && doubtful.has(record)) {
      await confirm({ records: [record], isReset: false }).catch((fault) => {
        const { missing, why = 'Repeat the request in a few seconds.' } = fault as Partial<Unconfirmed>;
        const what = ['An earlier change is not confirmed yet', missing].filter(Boolean).join(': ');
        throw new Unavailable(fault, `${what}. ${why}`);
      });
      doubtful.delete(record);
    }
    return fields;
  }

  async function change(given: Change): Promise<boolean> {
    const records = watchedIn(given);
    await begin();
    let isMade = false;
    try {
      isMade = await storage.change(given);
      if (isMade) await confirm({ records, isReset: hasReset(given.entries.map(({ fields }) => fields)) });
      return isMade;
    } catch (fault) {
      if (!(fault instanceof NotMade)) {
        for (const record of records) doubtful.add(record);
        if (!isMade) await announce({ records, isReset: false }).catch(() => {});
      }
      throw fault;
    }
  }

  const confirm = async (made: Made): Promise<void> => {
    if (made.records.length > 0) await Promise.all([announce(made), notify(made)]);
  };

  return withOwn(storage, { read, change });
}

/**
 * The records that workers keep in memory and must now read again. A key that was only created, renamed or tagged is
 * not among them, so it stays usable in an outage. Without an audit entry, a key is among them: a restored one may have
 * been refused before, and a change that alters nothing may repeat one that is not confirmed yet.
 */
function watchedIn({ parts, entries }: Change): RecordName[] {
  const concerns = entries.some(({ fields }) => concernsDecisions(fields));
  const watched = parts.filter(({ record }) =>
    keyIdOf(record) === undefined ? record === 'plans' : concerns || entries.length === 0,
  );
  return watched.map(({ record }) => record);
}

const hasReset = (entries: readonly Fields[]): boolean => entries.some(({ action }) => action === 'key.reset');

const changedKey = (key: string, isReset: boolean): Changed => (isReset ? { key, isReset } : { key });

const EVERY_MS = 250;

/**
 * Writes each ban that a decision imposes to a log that the other gateways follow, so that the ban is in force there
 * too, even if they lose Redis afterwards. A gateway also writes that it has seen another one's ban, so bans that are
 * known here are no news. The audit log contains only changes by operators.
 */
export function banLog(storage: Pick<Storage, 'change'>, clients: Pick<Clients, 'knowsBanOf'>) {
  const own = randomUUID();
  const waiting = new Set<string>();

  async function write(): Promise<void> {
    const keys = [...waiting].slice(0, BANS_AT_ONCE);
    if (keys.length === 0) return;
    for (const key of keys) waiting.delete(key);
    try {
      const entries = keys.map((target) => ({ log: 'bans', fields: { target, gateway: own } }) as const);
      await storage.change({ parts: [], entries });
    } catch (fault) {
      for (const key of keys) waiting.add(key);
      throw fault;
    }
  }

  const followed: Followed = {
    log: 'bans',
    about: 'bans by other gateways',
    risk: 'a key that another gateway has banned may still work here',
    changesIn(entries) {
      const elsewhere = entries.filter(({ gateway }) => gateway !== own);
      const keys = new Set(elsewhere.map(({ target = '' }) => target));
      return [...keys].filter((key) => isKeyId(key) && !clients.knowsBanOf(key)).map((key) => ({ key }));
    },
  };
  return {
    followed,
    add: (key: string) => void waiting.add(key),
    /** Runs until the signal is aborted. Bans that cannot be written now are written later. */
    run: (signal: AbortSignal) => void repeat(EVERY_MS, signal, write),
  };
}

const BANS_AT_ONCE = 250;

/** A log that gateways follow, because its entries show which keys may have changed. */
interface Followed {
  readonly log: LogName;
  /** For operators: what the entries are, and what may happen while they cannot be read. */
  readonly about: string;
  readonly risk: string;
  /** @param entries the newest first */
  changesIn(entries: readonly Fields[]): Changed[];
}

/** Changes by operators through other gateways. */
export const AUDIT_LOG: Followed = {
  log: 'audit',
  about: 'changes by other gateways',
  risk: 'a key that was revoked elsewhere may still work here',
  changesIn(entries) {
    const byKey = Map.groupBy(entries.filter(concernsDecisions), ({ target = '' }) => target);
    return [...byKey].filter(([key]) => isKeyId(key)).map(([key, changes]) => changedKey(key, hasReset(changes)));
  },
};

/** How many entries are read: the first number or, if more are new, the second. */
const PAGES = [20, 500];
/** If the last read was at most this long ago, there is no fault. */
const USUAL_MS = 2_000;

/** The loss of changes is a finding for this long, in ms. */
const LOSS_SHOWN_MS = 3_600_000;

/** Changes that the store no longer has, by the times of their entries (RFC 3339). */
interface LostChanges {
  /** The newest entry that is left before the loss; undefined if none is. */
  readonly after: string | undefined;
  /** The newest entry seen before the loss. */
  readonly until: string;
}

const UNREACHABLE = 'Restore the connection between this gateway and Redis.';
/** The name of the finding, and what to do. */
const LOST = 'changes by operators';
const LOST_REMEDY = 'See "Redis lost its data" in the runbook.';
const UNREADABLE =
  'Redis answers, but the stream of these entries is unreadable. Check what its key holds, then delete it.';
const REFUSED =
  'Redis answers, but refuses this. On NOPERM, fix the user gateway in users.acl; else see the other findings.';

/** The error with which Redis has refused a command; undefined if it did not answer. */
const refusalIn = ({ message }: Error): string | undefined => /^Redis failed: ([A-Z]{2,} .*)/.exec(message)?.[1];

/**
 * Follows a log, so that another gateway's change is in force here within a second, and stays in force while the store
 * is unavailable. Any key may have changed if the last entry seen is gone, if too many entries follow it, or if the
 * log's key holds something other than a log.
 * @param storage must have the deadline of decisions, so that reading does not wait for a dead connection
 * @param announce resolves when no process of this gateway acts on older data
 * @param onLost is called if the last entry seen was not cut off, but is gone: the store has returned with older data
 */
export function follow(
  { log, about, risk, changesIn }: Followed,
  storage: Pick<Storage, 'tail'>,
  announce: Announce,
  onLost: (lost: LostChanges) => void = () => {},
) {
  /** The id of the newest entry seen; '' if the log was empty, undefined before the first read. */
  let last: string | undefined;
  let lost: (LostChanges & { readonly at: number }) | undefined;
  let readAt = performance.now();
  let remedy = UNREACHABLE;
  let refusal: string | undefined;

  async function readNew(): Promise<void> {
    let page: readonly LoggedEntry[] = [];
    let seen = -1;
    for (const count of PAGES) {
      page = await storage.tail(log, { count });
      seen = last === '' && page.length < count ? page.length : page.findIndex(([id]) => id === last);
      if (seen !== -1 || last === undefined) break;
    }
    if (seen === -1) {
      noteLoss(page);
      await announce({ anyKey: true });
    } else {
      const entries = page.slice(0, seen).map(([, fields]) => fields);
      await Promise.all(changesIn(entries).map(announce));
    }
    last = page[0]?.[0] ?? '';
    readAt = performance.now();
    [remedy, refusal] = [UNREACHABLE, undefined];
  }

  /** @param page the newest entries, which do not include the last one seen */
  function noteLoss(page: readonly LoggedEntry[]): void {
    if (!last) return;
    const older = page.find(([id]) => isBefore(id, last as string));
    // A log that is longer than its shortest length may only have been cut.
    if (older === undefined && page.length >= SHORTEST_AUDIT_LOG) return;
    const changes = { after: older && timeOf(older[0]), until: timeOf(last) };
    lost = { ...changes, at: Date.now() };
    onLost(changes);
  }

  /**
   * Reads and announces the new entries.
   * @throws {Unavailable} if the store is unavailable or the log cannot be read
   */
  async function read(): Promise<void> {
    try {
      await readNew();
    } catch (fault) {
      refusal = refusalIn(fault as Error);
      remedy = refusal === undefined ? UNREACHABLE : REFUSED;
      if (fault instanceof OtherValue) {
        remedy = UNREADABLE;
        await announce({ anyKey: true });
      }
      throw fault;
    }
  }

  function check(): CheckResult {
    const age = performance.now() - readAt;
    const found = `were last read ${(age / 1_000).toFixed(1)} s ago`;
    if (age > USUAL_MS) {
      const why = refusal === undefined ? '' : `: ${refusal.replace(/\.$/, '')}`;
      return fault(about, `${found}${why}. Until they are read, ${risk}.`, remedy);
    }
    if (lost === undefined || Date.now() - lost.at > LOSS_SHOWN_MS) return good(about, found);
    const when = lost.after === undefined ? `until ${lost.until}` : `after ${lost.after} until ${lost.until}`;
    const what = `were lost, because Redis has older data: all ${when}`;
    return { ...fault(LOST, what, LOST_REMEDY), since: new Date(lost.at).toISOString() };
  }

  /** Reads regularly until the signal is aborted, and continues after a failure. */
  const run = (signal: AbortSignal) => void repeat(EVERY_MS, signal, read);

  return { read, check, run };
}

/** Compares the ids of two entries. */
function isBefore(one: string, other: string): boolean {
  const [[a = 0, b = 0], [c = 0, d = 0]] = [one, other].map((id) => id.split('-').map(Number)) as [number[], number[]];
  return a < c || (a === c && b < d);
}

const timeOf = (id: string): string => new Date(Number.parseInt(id, 10)).toISOString();
