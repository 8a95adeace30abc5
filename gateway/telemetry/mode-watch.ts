const LOOK_EVERY_MS = 500;

/** Watches whether decisions are local because Redis is away, and since when. */
export class ModeWatch {
  readonly #isLocalNow: () => boolean;
  readonly #timer: NodeJS.Timeout;
  #isLocal: boolean;
  #since = new Date();

  constructor(isLocalNow: () => boolean) {
    this.#isLocalNow = isLocalNow;
    this.#isLocal = isLocalNow();
    this.#timer = setInterval(() => this.#look(), LOOK_EVERY_MS).unref();
  }

  get isLocal(): boolean {
    this.#look();
    return this.#isLocal;
  }

  /** The last change, or the start. */
  get since(): Date {
    this.#look();
    return this.#since;
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    const isLocal = this.#isLocalNow();
    if (isLocal === this.#isLocal) return;
    this.#isLocal = isLocal;
    this.#since = new Date();
  }
}
