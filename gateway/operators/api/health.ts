import { setTimeout as sleep } from 'node:timers/promises';
import { type CheckResult, unknown } from '../../check-result.ts';
import { FindingsSince, type SeenFinding } from './findings-since.ts';

/** What gives no answer for this long is unknown: never well. */
const KNOWN_WITHIN_MS = 3_000;
const LOOK_EVERY_MS = 1_000;
/** Without a question for this long nobody looks on, so that an idle gateway asks nothing of a core. */
const ASKED_WITHIN_MS = 5_000;

type Look = () => Promise<readonly CheckResult[]> | readonly CheckResult[];

/** The findings of a check; after three seconds, that they are unknown. Never rejects. */
export async function answered(about: string, look: Look): Promise<readonly CheckResult[]> {
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
  unknown(about, `has not answered for ${KNOWN_WITHIN_MS / 1_000} s`, 'See whether it hangs, or its machine does.');

/**
 * Looks at what the gateway depends on, once a second while somebody watches. The console and readiness tell of what it
 * found, so that they agree.
 */
export class Health {
  readonly #looks: Readonly<Record<string, Look>>;
  readonly #findings = new FindingsSince();
  readonly #stopped = new AbortController();
  #seen: readonly SeenFinding[] = [];
  #askedAt = Number.NEGATIVE_INFINITY;
  /** The first look of those that run now; undefined if nobody watches. */
  #first: Promise<void> | undefined;

  /** @param looks quick ones, by what they are about */
  constructor(looks: Readonly<Record<string, Look>>) {
    this.#looks = looks;
  }

  /** Looks from now on, for a while. Resolves when there was a look. */
  async watch(): Promise<void> {
    this.#askedAt = performance.now();
    if (this.#first === undefined) {
      this.#first = this.#look();
      void this.#first.then(() => this.#goOn());
    }
    await this.#first;
  }

  /** The worst of what is not well: a fault, or what is unknown. Undefined if all is well, or nobody watches. */
  worst(): SeenFinding | undefined {
    return ['fault', 'unknown'].flatMap((status) => this.#seen.filter((one) => one.status === status))[0];
  }

  /** The same as a sentence. */
  detail(): string | undefined {
    const worst = this.worst();
    return worst && `${worst.about} ${worst.found}.`;
  }

  stop(): void {
    this.#stopped.abort();
  }

  async #look(): Promise<void> {
    const found = await Promise.all(Object.entries(this.#looks).map(([about, look]) => answered(about, look)));
    this.#seen = this.#findings.seen(found.flat());
  }

  async #goOn(): Promise<void> {
    const { signal } = this.#stopped;
    while (!signal.aborted && performance.now() - this.#askedAt < ASKED_WITHIN_MS) {
      await sleep(LOOK_EVERY_MS, undefined, { signal, ref: false }).catch(() => undefined);
      if (!signal.aborted) await this.#look();
    }
    this.#seen = [];
    this.#first = undefined;
  }
}
