import { repeat } from '../../shared/process/repeat.ts';
import { type CheckResult, fault, good } from '../check-result.ts';
import { isKeyId } from '../limiter/credential.ts';
import type { LoggedEntry, Storage } from '../stores/storage.ts';
import type { Announce } from './confirmed.ts';
import type { Changed } from './messages.ts';

const EVERY_MS = 250;
/** Entries that are read each time. The second number applies if there are more new ones. */
const PAGES = [20, 500];
/** The tail may be this old without a warning. */
const USUAL_MS = 2_000;

/**
 * Follows the audit log, so that another gateway's change is in force here within a second, and stays in force while
 * the store is away. If the last entry seen is gone, or too many followed, any key may have changed.
 */
export class TailFollower {
  readonly #storage: Pick<Storage, 'tail'>;
  readonly #announce: Announce;
  readonly #hasOneClock: boolean;
  /** The id of the newest entry seen; '' if the log was empty, undefined before the first read. */
  #last: string | undefined;
  #readAt = performance.now();

  /**
   * @param storage with the deadline of decisions, so that reading does not wait for a dead connection
   * @param announce resolves when no process of this gateway acts on older data
   * @param hasOneClock whether entries have their time from the clock that decides
   */
  constructor(storage: Pick<Storage, 'tail'>, announce: Announce, hasOneClock: boolean) {
    this.#storage = storage;
    this.#announce = announce;
    this.#hasOneClock = hasOneClock;
  }

  /** Runs until the signal. While the store is away, it reads nothing. */
  run(signal: AbortSignal): void {
    void repeat(EVERY_MS, signal, () => this.follow());
  }

  /** Reads and announces the new entries. @throws {Unavailable} if the store is away */
  async follow(): Promise<void> {
    const since = this.#last;
    let page: readonly LoggedEntry[] = [];
    let seen = -1;
    for (const count of PAGES) {
      page = await this.#storage.tail('audit', { count });
      seen = since === '' && page.length < count ? page.length : page.findIndex(([id]) => id === since);
      if (seen !== -1 || since === undefined) break;
    }
    if (seen === -1) await this.#announce({ anyKey: true });
    else await Promise.all(this.#changesIn(page.slice(0, seen)).map((changed) => this.#announce(changed)));
    this.#last = page[0]?.[0] ?? '';
    this.#readAt = performance.now();
  }

  /** The newest change of each key. An entry's id begins with its time in whole milliseconds. */
  #changesIn(entries: readonly LoggedEntry[]): Changed[] {
    const changes = new Map<string, Changed>();
    const resets = new Set<string>();
    for (const [id, { target = '', action }] of entries.toReversed()) {
      if (!isKeyId(target)) continue;
      if (action === 'key.reset') resets.add(target);
      const at = this.#hasOneClock ? { at: (Number.parseInt(id, 10) + 1) * 1_000 } : {};
      changes.set(target, { key: target, ...at, ...(resets.has(target) && { isReset: true }) });
    }
    return [...changes.values()];
  }

  check(): CheckResult {
    const age = performance.now() - this.#readAt;
    const seconds = (age / 1_000).toFixed(1);
    return age <= USUAL_MS
      ? good('changes by other gateways', `were last read ${seconds} s ago`)
      : fault(
          'changes by other gateways',
          `were last read ${seconds} s ago. Until they are read, a key that was revoked elsewhere may still work here.`,
          'Let this gateway reach Redis.',
        );
  }
}
