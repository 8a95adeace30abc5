import { Distribution, type Family, Label, Tally } from '../../shared/counts.ts';
import { FAULT_KINDS, type FaultKind } from './faults.ts';

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** What comes of asking the cores: how long they take, and how they fail. */
export class CoreCounts {
  readonly #core: Label;
  readonly #kind = new Label('kind', FAULT_KINDS);
  readonly #seconds: Distribution;
  readonly #faults: Tally;
  readonly #askedAgain: Tally;

  /** @param origins of the cores, which stand for them in the label `core` */
  constructor(origins: readonly string[]) {
    this.#core = new Label('core', origins);
    this.#seconds = new Distribution(
      {
        name: 'gateway_upstream_duration_seconds',
        help: 'Time until a core began to answer or was given up, the wait for a connection counted in.',
      },
      SECONDS,
      this.#core,
    );
    this.#faults = new Tally(
      { name: 'gateway_upstream_errors_total', help: 'Attempts to have an answer of a core that failed, by kind.' },
      this.#core,
      this.#kind,
    );
    this.#askedAgain = new Tally(
      {
        name: 'gateway_upstream_asked_again_total',
        help: 'Reads asked a second time, as a core was late with the first.',
      },
      this.#core,
    );
    for (const origin of origins) this.#askedAgain.declare(origin);
    for (const origin of origins) for (const kind of FAULT_KINDS) this.#faults.declare(origin, kind);
  }

  answered(origin: string, milliseconds: number): void {
    this.#seconds.observe(milliseconds / 1_000, this.#core.positionOf(origin));
  }

  /** @param kind undefined where the core is not to blame */
  failed(origin: string, kind: FaultKind | undefined): void {
    if (kind !== undefined) this.#faults.add(this.#core.positionOf(origin), this.#kind.positionOf(kind));
  }

  /** @param origin of the core that is late */
  askedAgain(origin: string): void {
    this.#askedAgain.add(this.#core.positionOf(origin));
  }

  families(): Family[] {
    return [this.#seconds.family(), this.#faults.family(), this.#askedAgain.family()];
  }
}
