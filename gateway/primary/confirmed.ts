import type { Clients } from '../limiter/clients.ts';
import type { PlanCache } from '../stores/plan-cache.ts';
import { Plans } from '../stores/plans.ts';
import { type Change, keyIdOf, NotMade, type RecordName, type Storage, Unknown, withOwn } from '../stores/storage.ts';
import type { Changed } from './messages.ts';

export type Announce = (changed: Changed) => Promise<void>;

/** Makes this process act on a change. */
export function actOn(changed: Changed, clients: Clients, planCache: PlanCache | undefined): void {
  if ('key' in changed) clients.noteChange(changed.key, changed.at, changed.isReset);
  else if ('anyKey' in changed) clients.doubtAll();
  else planCache?.take(changed.plans);
}

/**
 * The storage of operators, which acknowledges a change once every worker of this gateway acts on it.
 * @param announce resolves when no worker acts on older data
 */
export function confirmed(storage: Storage, announce: Announce): Storage {
  /** Records that may have been changed. Reading one of them back acknowledges the change, so it is announced first. */
  const doubtful = new Set<RecordName>();
  let hasPlans = false;

  async function read(record: RecordName) {
    const fields = await storage.read(record);
    if (doubtful.has(record)) {
      await confirm([record]);
      doubtful.delete(record);
    }
    return fields;
  }

  async function change(given: Change): Promise<boolean> {
    const watched = watchedIn(given);
    // A store that contains a key is no longer empty, and would then get no plans.
    if (!hasPlans) await new Plans(storage).begin();
    hasPlans = true;
    try {
      const isMade = await storage.change(given);
      if (isMade) await confirm(watched, isReset(given));
      return isMade;
    } catch (fault) {
      if (!(fault instanceof NotMade)) {
        for (const record of watched) doubtful.add(record);
        await confirm(watched).catch(() => {});
      }
      throw fault;
    }
  }

  async function confirm(records: readonly RecordName[], isReset = false): Promise<void> {
    const confirmations = records.map((record) => {
      const key = keyIdOf(record);
      return key === undefined ? announcePlans() : announce({ key, ...(isReset && { isReset }) });
    });
    await Promise.all(confirmations);
  }

  /** The plans are sent along, because a worker's connection may be slower than that of operators. */
  async function announcePlans(): Promise<void> {
    const plans = await storage.read('plans').catch((cause) => Promise.reject(new Unknown(cause)));
    if (plans !== undefined) await announce({ plans });
  }

  return withOwn(storage, { read, change });
}

/**
 * The records that workers keep in memory. A key that is new need not be announced, because nobody has presented its id
 * yet. A restored key may have been refused before.
 */
function watchedIn({ parts, entries }: Change): RecordName[] {
  const isNew = entries.some(({ fields }) => fields.action === 'key.create');
  const watched = parts.filter(({ record, exists }) =>
    keyIdOf(record) === undefined ? record === 'plans' : !(isNew && exists === false),
  );
  return watched.map(({ record }) => record);
}

const isReset = ({ entries }: Change): boolean => entries.some(({ fields }) => fields.action === 'key.reset');
