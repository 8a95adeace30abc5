import { setTimeout as sleep } from 'node:timers/promises';
import { type CheckResult, unknown } from '../../check-result.ts';
import { FindingsSince } from './findings-since.ts';

/** What gives no answer for this long is unknown: never well. */
const KNOWN_WITHIN_MS = 3_000;
const LOOK_EVERY_MS = 1_000;
/** Without a question for this long nobody watches, so that an idle gateway asks nothing of a core. */
const WATCHED_WITHIN_MS = 5_000;
/** Readiness is asked more rarely, by orchestrators: every ten seconds at most, usually. */
const ASKED_WITHIN_MS = 15_000;

type Findings = Promise<readonly CheckResult[]> | readonly CheckResult[];

/** The findings of a check; after three seconds, that they are unknown. Never rejects. */
export async function answered(about: string, look: () => Findings): Promise<readonly CheckResult[]> {
  const late = new AbortController();
  const waited = sleep(KNOWN_WITHIN_MS, [noAnswer(about)], { ref: false, signal: late.signal });
  try {
    return await Promise.race([look(), waited]);
  } catch (thrown) {
    return [
      unknown(about, `cannot be looked at: ${(thrown as Error).message}`, 'The log of the gateway may say more.'),
    ];
  } finally {
    late.abort();
    waited.catch(() => undefined);
  }
}

const noAnswer = (about: string): CheckResult =>
  unknown(about, 'does not answer', 'See whether it hangs, or its machine does.');

/**
 * Looks at what the gateway depends on, once a second while somebody asks. The console, readiness and the doctor report
 * what it found, so that they agree.
 */
export class Health {
  readonly #looks: Readonly<Record<string, (isWatched: boolean) => Findings>>;
  readonly #findings = new FindingsSince();
  readonly #stopped = new AbortController();
  #seen: readonly CheckResult[] = [];
  #watchedAt = Number.NEGATIVE_INFINITY;
  #askedAt = Number.NEGATIVE_INFINITY;
  /** The first look of those since somebody watches. */
  #first: Promise<void> | undefined;
  #isLooking = false;

  /** @param looks quick ones, by what they are about. Only if somebody watches may they probe a single core. */
  constructor(looks: Readonly<Record<string, (isWatched: boolean) => Findings>>) {
    this.#looks = looks;
  }

  /** Looks from now on, for a while. Resolves when there was a look. */
  async watch(): Promise<void> {
    const wasWatched = this.#isWatched;
    this.#watchedAt = performance.now();
    if (!wasWatched) this.#first = this.#look();
    void this.#lookOn(this.#first);
    await this.#first;
  }

  /** What the last look found; nothing if nobody asks. */
  get seen(): readonly CheckResult[] {
    return this.#seen;
  }

  /** The worst of what is not well: a fault, or what is unknown. Undefined if all is well, or nobody asks. */
  worst(): CheckResult | undefined {
    return ['fault', 'unknown'].flatMap((status) => this.#seen.filter((one) => one.status === status))[0];
  }

  /** For readiness: the same as a sentence, at once. Looks from now on, but probes no single core. */
  detail(): string | undefined {
    this.#askedAt = performance.now();
    if (!this.#isLooking) void this.#lookOn(this.#look());
    const worst = this.worst();
    return worst && `${worst.about} ${worst.found} (${worst.status} since ${worst.since}).`;
  }

  stop(): void {
    this.#stopped.abort();
  }

  get #isWatched(): boolean {
    return performance.now() - this.#watchedAt < WATCHED_WITHIN_MS;
  }

  async #look(): Promise<void> {
    const isWatched = this.#isWatched;
    const looks = Object.entries(this.#looks).map(([about, look]) => answered(about, () => look(isWatched)));
    this.#seen = this.#findings.seen((await Promise.all(looks)).flat());
  }

  async #lookOn(first: Promise<void> | undefined): Promise<void> {
    if (this.#isLooking) return;
    this.#isLooking = true;
    await first;
    const { signal } = this.#stopped;
    while (!signal.aborted && (this.#isWatched || performance.now() - this.#askedAt < ASKED_WITHIN_MS)) {
      await sleep(LOOK_EVERY_MS, undefined, { signal, ref: false }).catch(() => undefined);
      if (!signal.aborted) await this.#look();
    }
    this.#seen = this.#findings.seen([]);
    this.#isLooking = false;
  }
}
