import { repeat } from '../../shared/process/repeat.ts';
import { AuditLog, auditEntries } from './audit.ts';
import { byHand, handEditsOf, seenOf } from './hand-edits.ts';
import { REVOKED_KEPT_SECONDS } from './key-backup.ts';
import type { PlanCache } from './plan-cache.ts';
import type { Plans } from './plans.ts';
import type { KeyCursor, Storage } from './storage.ts';

const AT_ONCE = 50;

/** The check is cheap: it does nothing until the cache has read another table. */
const PLANS_EVERY_MS = 100;

const USUAL = {
  everyMs: 1_000,
  /** A new or restored key has its place in the order before it has data, for less than this time. */
  withoutDataMs: 60_000,
};

interface EditWatchParts {
  readonly storage: Storage;
  readonly plans: Plans;
  readonly planCache: PlanCache;
}

/**
 * Records in the audit log what was edited in the store by hand: plans, records, secrets and bans of keys, and keys
 * that were deleted. Each gateway reads a few keys a second, starting at a random key, so more gateways find an edit
 * sooner. It accepts and records an edit in one step, so the edit is recorded once. It writes a missing plan table
 * back.
 */
export class EditWatch {
  readonly #parts: EditWatchParts;
  readonly #times: typeof USUAL;
  /** When each listed key without data was first seen, by id. */
  readonly #missing = new Map<string, number>();
  #at: number | undefined;
  #checkedVersion: string | undefined;

  constructor(parts: EditWatchParts, times = USUAL) {
    this.#parts = parts;
    this.#times = times;
  }

  /** Runs until the signal. While the store is away, it finds nothing. */
  run(signal: AbortSignal): void {
    void repeat(PLANS_EVERY_MS, signal, () => this.#checkPlans());
    void repeat(this.#times.everyMs, signal, () => this.#checkKeys());
  }

  async #checkPlans(): Promise<void> {
    const { plans, planCache } = this.#parts;
    const { version } = planCache;
    if (planCache.isMissing) {
      await plans.writeBack(planCache.lastGood);
    } else if (version !== this.#checkedVersion) {
      await plans.acceptEdit(planCache.lastGood);
      this.#checkedVersion = version;
    }
  }

  async #checkKeys(): Promise<void> {
    const { storage, plans, planCache } = this.#parts;
    // While the table holds a bad value, the last good one must stay stored.
    if (planCache.rejected.length > 0) await plans.acceptEdit(planCache.lastGood);
    this.#at ??= Math.floor(Math.random() * (await storage.countKeys()));
    const cursors = await storage.listKeys({ offset: this.#at, limit: AT_ONCE, newestFirst: true });
    this.#at = cursors.length < AT_ONCE ? 0 : this.#at + AT_ONCE;
    await Promise.all(cursors.map((cursor) => this.#checkKey(cursor)));
  }

  async #checkKey(cursor: KeyCursor): Promise<void> {
    const { storage } = this.#parts;
    const { id } = cursor;
    const fields = await storage.read(`key:${id}`);
    if (fields === undefined) return await this.#miss(cursor);
    this.#missing.delete(id);
    const { entries, changes } = handEditsOf(id, fields, Date.now() * 1_000);
    if (entries.length === 0) return;
    const part = { record: `key:${id}`, exists: true, expect: seenOf(fields), set: changes } as const;
    await storage.change({ parts: [part], entries: auditEntries(...entries) });
  }

  async #miss({ id, createdAt }: KeyCursor): Promise<void> {
    const since = this.#missing.get(id) ?? Date.now();
    this.#missing.set(id, since);
    if (Date.now() - since < this.#times.withoutDataMs) return;
    this.#missing.delete(id);
    // A place added by hand has whole seconds.
    const wasKey = !Number.isInteger(createdAt) || (await this.#isInAuditLog(id));
    const entry = wasKey
      ? byHand('key.revoke', id, 'Its data is gone.')
      : byHand('key.reindex', id, 'It was in the list of keys, and is no key.');
    await this.#parts.storage.change({
      parts: [
        { record: `revoked:${id}`, exists: false },
        {
          record: `key:${id}`,
          exists: false,
          moveTo: { record: `revoked:${id}`, fields: [], seconds: REVOKED_KEPT_SECONDS, mark: 'deleted_by_hand' },
        },
      ],
      entries: auditEntries(entry),
    });
  }

  async #isInAuditLog(id: string): Promise<boolean> {
    const query = { after: undefined, limit: 1, isWanted: ({ target }: { target: string }) => target === id };
    return (await new AuditLog(this.#parts.storage).list(query)).activity.length > 0;
  }
}
