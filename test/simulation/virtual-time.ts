import { syncBuiltinESMExports } from 'node:module';
import FakeTimers from '@sinonjs/fake-timers';

/** The Unix time in milliseconds at which virtual time begins. */
const BEGIN_MS = 1_795_132_800_123;

/** Node runs all pending promise callbacks between two real immediates. */
const realImmediate = setImmediate;
/** The number of timers that share a turn of the real event loop, because a turn costs more than most timers. */
const TIMERS_A_TURN = 16;

/**
 * Replaces timers and clocks of this process, so that the product's code runs unchanged in virtual time. Time advances
 * from timer to timer, and stops during real calls.
 */
export class VirtualTime {
  readonly #clock = FakeTimers.install({
    now: BEGIN_MS,
    toFake: [
      ...(['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'setImmediate', 'clearImmediate'] as const),
      ...(['Date', 'performance'] as const),
    ],
  });
  #underWay = 0;
  #onIdle = () => {};

  constructor() {
    // Imports of node:timers/promises get the fake timers too.
    syncBuiltinESMExports();
  }

  [Symbol.dispose](): void {
    this.#clock.uninstall();
    syncBuiltinESMExports();
  }

  /** The milliseconds since the beginning. */
  get now(): number {
    return this.#clock.now - BEGIN_MS;
  }

  /** The Unix time in microseconds, which is the clock of the simulated Redis. */
  get microseconds(): number {
    return this.#clock.now * 1_000;
  }

  at(ms: number, task: () => void): void {
    setTimeout(task, Math.max(0, ms - this.now));
  }

  /** Makes a real call, during which virtual time stops. */
  async real<T>(call: () => Promise<T>): Promise<T> {
    this.#underWay += 1;
    try {
      return await call();
    } finally {
      this.#underWay -= 1;
      if (this.#underWay === 0) this.#onIdle();
    }
  }

  /** Advances until the given time, or until `isOver` returns true. */
  async runUntil(ms: number, isOver: () => boolean): Promise<void> {
    let isReached = false;
    this.at(ms, () => {
      isReached = true;
    });
    let isEnd = false;
    const step = () => {
      if (this.#underWay > 0 || isEnd) return;
      isEnd = isReached || isOver();
      if (!isEnd) this.#clock.next();
    };
    while (!isEnd) {
      await new Promise<void>((resolve) => {
        for (let at = 0; at < TIMERS_A_TURN; at++) realImmediate(step);
        realImmediate(resolve);
      });
      if (this.#underWay > 0)
        await new Promise<void>((resolve) => {
          this.#onIdle = resolve;
        });
    }
  }
}
