import { Counter, type Family, Histogram, Label } from '../../shared/process/counts.ts';
import { FAULT_KINDS, type FaultKind } from './faults.ts';

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** The last failure of a core, and its Unix time in ms. */
export interface LastFault {
  readonly at: number;
  readonly kind: FaultKind;
}

/** Metrics of one core: the duration of its answers, and its failures. */
export class CoreCounts {
  readonly #kind = new Label('kind', FAULT_KINDS);
  readonly #seconds: Histogram;
  readonly #faults: Counter;
  readonly #again: Counter;
  lastFault: LastFault | undefined;

  /** @param origin the value of the label `core` */
  constructor(origin: string) {
    const core = new Label('core', [origin]);
    this.#seconds = new Histogram(
      {
        name: 'gateway_upstream_duration_seconds',
        help: 'Time until a core began to answer or was given up, including the wait for a connection.',
      },
      SECONDS,
      core,
    );
    this.#faults = new Counter(
      { name: 'gateway_upstream_errors_total', help: 'Failed attempts to get an answer from a core, by kind.' },
      core,
      this.#kind,
    );
    this.#again = new Counter(
      {
        name: 'gateway_upstream_asked_again_total',
        help: 'Reads sent a second time because a core was late with the first.',
      },
      core,
    );
    this.#again.declare(origin);
    for (const kind of FAULT_KINDS) this.#faults.declare(origin, kind);
  }

  answered(milliseconds: number): void {
    this.#seconds.observe(milliseconds / 1_000);
  }

  /** @param kind undefined if the core is not to blame */
  failed(kind: FaultKind | undefined): void {
    if (kind === undefined) return;
    this.#faults.add(0, this.#kind.positionOf(kind));
    this.lastFault = { at: Date.now(), kind };
  }

  /** Counts a read that was sent again because this core was late. */
  askedAgain(): void {
    this.#again.add();
  }

  families(): Family[] {
    return [this.#seconds.family(), this.#faults.family(), this.#again.family()];
  }
}

/** The metric families of several cores, each with the series of all. */
export function familiesOf(cores: readonly CoreCounts[]): Family[] {
  const each = cores.map((counts) => counts.families());
  return (each[0] ?? []).map((family, at) => ({ ...family, values: each.flatMap((one) => one[at]?.values ?? []) }));
}
