import { Distribution, type Family, Tally } from '../../../shared/counts.ts';

/** The calls to Redis that decide: how many requests each decided on, and how long it took. */
export class CallCounts {
  readonly #sizes = new Distribution(
    { name: 'gateway_redis_batch_size', help: 'Requests that one call to Redis decided on.' },
    [1, 2, 4, 8, 16, 32, 64, 128, 256],
  );
  readonly #seconds = new Distribution(
    { name: 'gateway_redis_call_duration_seconds', help: 'Time of one such call, those that failed counted in.' },
    [0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25],
  );

  readonly #missed = new Tally({
    name: 'gateway_redis_deadlines_missed_total',
    help: 'Such calls that were not answered within REDIS_TIMEOUT_MS: their answer came late, or not at all.',
  });

  constructor() {
    this.#missed.declare('');
  }

  missed(): void {
    this.#missed.add();
  }

  ended(requests: number, milliseconds: number): void {
    this.#sizes.observe(requests);
    this.#seconds.observe(milliseconds / 1_000);
  }

  families(): Family[] {
    return [this.#sizes.family(), this.#seconds.family(), this.#missed.family()];
  }
}
