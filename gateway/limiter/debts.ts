import { Counter, type Family, Label } from '../../shared/process/counts.ts';
import type { Client } from './client.ts';
import type { Clients } from './clients.ts';
import type { Debt } from './debt.ts';
import type { Decision } from './limiter.ts';

/** The outcome of a call that charges. A call with `not run` can be repeated. */
export type Charged =
  | { readonly decision: Decision; readonly forgiven: number }
  /** The key was deleted, or its data allows no decision. */
  | 'gone'
  | 'not run'
  | 'unknown';

export interface Charger {
  /** The most keys that one call can charge. */
  readonly atOnce: number;
  /** Whether the store answers for this key now. Never throws. */
  answers(id: string): Promise<boolean>;
  /** Charges each key for what was decided without the store. Never throws. */
  charge(debts: readonly (Debt & { readonly id: string })[]): Promise<readonly Charged[]>;
}

const FATES = ['charged', 'forgiven', 'unknown'];

const EVERY_MS = 250;
/** Calls that run at once if each of them can charge only one key. */
const CALLS_AT_ONCE = 8;

/**
 * Charges what was admitted while the store was away, as soon as the store answers again. No debt is sent twice. Debts
 * that the store forgives, and those with an unknown outcome, are counted.
 */
export class Debts {
  readonly #clients: Clients;
  readonly #charger: Charger;
  readonly #timer: NodeJS.Timeout;
  #isUnderWay = false;
  readonly #counted = new Counter(
    {
      name: 'gateway_local_admissions_total',
      help: 'Requests that were admitted while Redis was away, by what became of their charge.',
    },
    new Label('fate', FATES),
  );

  constructor(clients: Clients, charger: Charger) {
    this.#clients = clients;
    this.#charger = charger;
    for (const fate of FATES) this.#counted.declare(fate);
    this.#timer = setInterval(() => void this.settle(), EVERY_MS).unref();
  }

  /** Counts a local admission for which the store may have charged as well. */
  readonly noteUnknown = (): void => this.#counted.addMany(1, 'unknown');

  /** Charges all debts if the store answers. */
  async settle(): Promise<void> {
    if (this.#isUnderWay) return;
    this.#isUnderWay = true;
    const debtors = this.#clients.debtors();
    const size = this.#charger.atOnce;
    const parts = Array.from({ length: Math.ceil(debtors.length / size) }, (_, at) =>
      debtors.slice(at * size, (at + 1) * size),
    );
    const lanes = Math.min(parts.length, size === 1 ? CALLS_AT_ONCE : 1);
    await Promise.all(
      Array.from({ length: lanes }, async () => {
        for (let part = parts.shift(); part !== undefined; part = parts.shift()) await this.#settlePart(part);
      }),
    );
    this.#isUnderWay = false;
  }

  counted(): Family[] {
    return [this.#counted.family()];
  }

  /** Charges what it can before the process stops. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.settle();
  }

  async #settlePart(debtors: readonly Client[]): Promise<void> {
    if (!(await this.#charger.answers((debtors[0] as Client).id))) return;
    const debts = debtors.map((client) => ({ ...client.debt, id: client.id }));
    const ends = await this.#charger.charge(debts);
    for (const [at, end] of ends.entries()) {
      const [client, debt] = [debtors[at] as Client, debts[at] as Debt];
      if (end === 'not run') continue;
      const forgiven = typeof end === 'object' ? end.forgiven : debt.admitted;
      this.#clients.settle(client, debt, typeof end === 'object' ? end.decision : undefined);
      this.#counted.addMany(forgiven, end === 'unknown' ? 'unknown' : 'forgiven');
      this.#counted.addMany(debt.admitted - forgiven, 'charged');
    }
  }
}
