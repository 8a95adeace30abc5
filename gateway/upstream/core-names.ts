import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from '../../shared/process/logger.ts';
import { type CoreAddress, type CoreName, isName, parseCoreUrl, withoutAddress } from './core-url.ts';
import { resolveName } from './resolve.ts';

/**
 * CoreDNS caches an answer for 5 s. Together this is less than the 8 s for which a core still serves after leaving its
 * name.
 */
const RESOLVE_EVERY_MS = 2_000;
/** A start waits this long for names, then continues without them. */
const START_WITHIN_MS = 2_000;

/**
 * The addresses of all cores. Names are resolved regularly. A name that cannot be resolved keeps its last addresses.
 */
export class CoreNames {
  readonly #entries: readonly (CoreAddress | Watched)[];
  readonly #onChange: (addresses: CoreAddress[]) => void;

  /**
   * @param urls entries of CORE_URL
   * @param onChange called with all addresses: at once, then after each change
   */
  constructor(urls: readonly string[], logger: Logger, onChange: (addresses: CoreAddress[]) => void) {
    this.#onChange = onChange;
    this.#entries = urls.map((url) => {
      const parsed = parseCoreUrl(url);
      return isName(parsed) ? new Watched(parsed, logger, () => this.#tell()) : parsed;
    });
    this.#tell();
  }

  /** Begins to resolve all names regularly. Ends after the first time, or when that takes too long. */
  async start(): Promise<void> {
    const asked = this.#watched().map((name) => name.watch());
    const enough = new AbortController();
    const late = sleep(START_WITHIN_MS, undefined, { signal: enough.signal }).catch(() => {});
    await Promise.race([Promise.all(asked), late]);
    enough.abort();
  }

  /** How many names cannot be resolved at present. */
  get lost(): number {
    return this.#watched().filter(({ isLost }) => isLost).length;
  }

  close(): void {
    for (const name of this.#watched()) name.close();
  }

  #tell(): void {
    this.#onChange(this.#entries.flatMap((entry) => (entry instanceof Watched ? entry.addresses : [entry])));
  }

  #watched(): Watched[] {
    return this.#entries.filter((entry) => entry instanceof Watched);
  }
}

/** One name. */
class Watched {
  addresses: readonly CoreAddress[];
  readonly #name: CoreName;
  readonly #logger: Logger;
  readonly #onChange: () => void;
  /** The last attempt to resolve it failed. */
  isLost = false;
  #isClosed = false;
  #timer: NodeJS.Timeout | undefined;
  #known: readonly string[] = [];

  constructor(name: CoreName, logger: Logger, onChange: () => void) {
    this.#name = name;
    this.#logger = logger;
    this.#onChange = onChange;
    this.addresses = [withoutAddress(name)];
  }

  /** Resolves the name now and then regularly. Ends after the first time. */
  async watch(): Promise<void> {
    try {
      const found = await resolveName(this.#name);
      if (!this.#isClosed) this.#take(found);
    } catch (fault) {
      if (!this.isLost) this.#logger.warn({ name: this.#name.text, err: fault }, 'core name cannot be resolved');
      this.isLost = true;
    }
    if (!this.#isClosed) this.#timer = setTimeout(() => void this.watch(), RESOLVE_EVERY_MS).unref();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }

  #take(found: readonly CoreAddress[]): void {
    const name = this.#name.text;
    if (this.isLost) this.#logger.info({ name }, 'core name is resolved again');
    this.isLost = false;
    const origins = [...new Set(found.map(({ origin }) => origin))];
    const added = origins.filter((origin) => !this.#known.includes(origin));
    const left = this.#known.filter((origin) => !origins.includes(origin));
    if (added.length + left.length === 0) return;
    for (const core of added) this.#logger.info({ core, name }, 'core added');
    for (const core of left) this.#logger.info({ core, name }, 'core left');
    this.#known = origins;
    this.addresses = found;
    this.#onChange();
  }
}
