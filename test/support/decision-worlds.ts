import { PLAN_NAMES, type Plan, type PlanName } from '../../gateway/limiter/plans.ts';
import { ModelKey, type ModelRecord, type ModelSecret, type ModelUse } from './decision-model.ts';
import { generator } from './fleets.ts';
import { BEGIN, SECOND } from './limiters.ts';

/**
 * Random histories of one key, with the model's verdict on each request. A history has all kinds of clients, operators,
 * and a clock that may jump.
 */

export const SECRET = 'a'.repeat(64);
const OLD_SECRET = 'b'.repeat(64);
const WRONG_SECRET = 'c'.repeat(64);
const BOUND_SECRET = 'd'.repeat(64);
const NETWORKS = ['10.0.0.0/8', '10.1.128.0/17', '192.0.2.7/32', '0.0.0.0/0', '2001:db8::/33', '::/0', 'fe80::1/128'];
const ADDRESSES = ['10.1.200.3', '10.1.2.3', '192.0.2.7', '2001:db8:7fff::1', '2001:db8:8000::1', 'fe80::1', ''];
const USES = (['read', 'write', undefined] as const).flatMap((scope) =>
  ADDRESSES.map((address) => ({ scope, address })),
);

const randomBounds = (chance: Chance): ModelSecret => ({
  scope: chance.one(undefined, undefined, 'read', 'write'),
  networks: chance.one(undefined, undefined, [chance.one(...NETWORKS), chance.one(...NETWORKS)]),
});
const DAY = 86_400 * SECOND;

export type Plans = Readonly<Record<PlanName, Plan>>;

export type Step =
  /**
   * `said` has a verdict for each request, followed by the state after the last one. A `count` of 0 is a peek, with one
   * verdict.
   */
  | { type: 'ask'; now: number; use: ModelUse; count: number; plans: Plans; said: readonly string[] }
  | { type: 'record'; changes: Partial<ModelRecord> }
  | { type: 'ban'; until: number }
  | { type: 'lift' };

export interface World {
  readonly record: ModelRecord;
  readonly steps: readonly Step[];
}

interface Client {
  at: number;
  readonly kind: 'waits' | 'waits late' | 'does not wait' | 'at once';
  readonly pause: number;
}

class Chance {
  readonly #next: () => number;

  constructor(seed: number) {
    this.#next = generator(seed);
  }

  of(share: number): boolean {
    return this.#next() < share;
  }

  below(limit: number): number {
    return this.#next() * limit;
  }

  /** A whole number from 1 to `most`. All orders of magnitude are equally likely. */
  upTo(most: number): number {
    return Math.min(most, Math.floor(Math.exp(this.#next() * Math.log(most + 1))));
  }

  one<T>(...choices: readonly T[]): T {
    return choices[Math.floor(this.#next() * choices.length)] as T;
  }
}

function randomPlan(chance: Chance): Plan {
  return {
    minute: chance.one(60, chance.upTo(20), chance.upTo(300), chance.upTo(1e9)),
    day: chance.one(1e9, 1e9, chance.upTo(60), chance.upTo(5_000), chance.upTo(1e9)),
    ban_after: chance.one(undefined, undefined, chance.upTo(12), chance.upTo(100), chance.upTo(1e9)),
    ban_grace_seconds: chance.one(0, 0, 30, undefined, chance.upTo(10), chance.upTo(600)),
    ban_seconds: chance.one(10, 300, chance.upTo(90_000)),
    mode: chance.of(0.05) ? 'shadow' : 'enforce',
    // The compiler demands every field of a plan, so that the model and both limiters are compared with it.
  } satisfies Record<keyof Plan, unknown> as Plan;
}

/** Enterprise has no default limits. */
const randomPlans = (chance: Chance): Plans => {
  const plans = Object.fromEntries(PLAN_NAMES.map((name) => [name, randomPlan(chance)])) as Record<PlanName, Plan>;
  const { minute: _minute, day: _day, ...enterprise } = plans.enterprise;
  return { ...plans, enterprise };
};

/** @param met records which rules applied */
export function randomWorld(seed: number, requests: number, met: Set<string>): World {
  const chance = new Chance(seed);
  let plans = randomPlans(chance);
  const plan = chance.one<PlanName>('free', 'pro', 'business', 'enterprise');
  const override = plan === 'enterprise' ? chance.of(0.9) : chance.of(0.15);
  const record: ModelRecord = { plan, secrets: { [SECRET]: {} } };
  if (override) Object.assign(record, { minute: chance.upTo(200), day: chance.one(1e9, chance.upTo(2_000)) });
  const key = new ModelKey({ ...record }, met);
  const minute = record.minute ?? plans[plan].minute ?? 1;
  const clients = randomClients(chance, minute);
  const steps: Step[] = [];

  let [now, skew, asked] = [BEGIN, 0, 0];
  const ask = (secret: string, count: number): readonly string[] => {
    const use = { secret, ...chance.one(...USES) };
    const decide = () => key.decide(use, plans, now + skew);
    const said = count === 0 ? [key.peek(use, plans, now + skew)] : Array.from({ length: count }, decide);
    steps.push({ type: 'ask', now: now + skew, use, count, plans, said: [...said, key.remembered] });
    asked += said.length;
    return said;
  };
  const change = (changes: Partial<ModelRecord>) => {
    Object.assign(key.record, changes);
    steps.push({ type: 'record', changes });
  };
  const changeSecret = (secret: string, about: ModelSecret | undefined) => {
    const { [secret]: _old, ...others } = key.record.secrets;
    change({ secrets: about === undefined ? others : { ...others, [secret]: about } });
  };
  const setMode = (mode: NonNullable<Plan['mode']>) => {
    plans = { ...plans, [plan]: { ...plans[plan], mode } };
  };
  function operate(): void {
    const what = chance.below(16);
    const later = now + skew + Math.floor(chance.below(chance.one(10, 200, 100_000) * SECOND));
    if (what < 3) skew += Math.floor(chance.below(chance.one(3, 100, 100_000) * SECOND)) * chance.one(-1, -1, 1);
    else if (what < 4) now += chance.one(SECOND, 60 * SECOND, 3_600 * SECOND, DAY);
    else if (what < 5) plans = { ...plans, [plan]: { ...plans[plan], ...pick(randomPlan(chance), plan, chance) } };
    else if (what < 6)
      change({
        minute: chance.one(minute, Math.min(Math.ceil(minute * 1.3), 1e9), undefined, chance.upTo(200)),
        day: chance.one(undefined, 1e9, 40),
      });
    else if (what < 6.5) change({ isDisabled: !key.record.isDisabled });
    else if (what < 7) change({ expiresAt: chance.one(undefined, later) });
    else if (what < 8) changeSecret(OLD_SECRET, chance.of(0.8) ? { until: later } : undefined);
    else if (what < 8.5) changeSecret(chance.one(SECRET, BOUND_SECRET), randomBounds(chance));
    else if (what < 9) {
      const until = later + (chance.of(0.5) ? 0 : 20 * SECOND);
      key.banUntil(until);
      steps.push({ type: 'ban', until });
    } else if (what < 12) {
      key.liftBan();
      steps.push({ type: 'lift' });
    } else ask(chance.one(WRONG_SECRET, OLD_SECRET, BOUND_SECRET), chance.one(0, 1, 2));
  }

  while (asked < requests) {
    const client = clients.reduce((first, other) => (other.at < first.at ? other : first));
    now = Math.max(now, client.at);
    const [last = ''] = ask(SECRET, client.kind === 'at once' ? chance.upTo(40) : 1).slice(-1);
    client.at = now + nextAt(chance, client, last, now + skew);
    if (chance.of(0.03)) ask(SECRET, 0);
    if (chance.of(0.02)) operate();
    if (last.startsWith('banned') && chance.of(0.05)) setMode('shadow');
    else if (plans[plan].mode === 'shadow' && chance.of(0.05)) setMode('enforce');
    if (key.record.isDisabled && chance.of(0.3)) change({ isDisabled: false });
    if (last === 'elsewhere' || (last.startsWith('forbidden') && chance.of(0.3))) changeSecret(SECRET, {});
    if (last.startsWith('expired') && chance.of(0.3)) change({ expiresAt: undefined });
  }
  return { record, steps };
}

/** Chooses one or two fields of a plan. Enterprise has no limits. */
function pick(plan: Plan, name: PlanName, chance: Chance): Plan {
  const fields = Object.entries(plan).filter(([field]) => name !== 'enterprise' || !['minute', 'day'].includes(field));
  return Object.fromEntries([chance.one(...fields), chance.one(...fields)]);
}

function randomClients(chance: Chance, minute: number): Client[] {
  const tokenTime = (60 * SECOND) / Math.min(minute, 10_000);
  const client = (kind: Client['kind'], pause: number): Client => {
    return { at: BEGIN + Math.floor(chance.below(30 * SECOND)), kind, pause };
  };
  const many = chance.upTo(Math.min(60, Math.max(2, minute)));
  const clients = Array.from({ length: many }, () => client(chance.one('waits', 'waits', 'waits late'), 20_000));
  if (chance.of(0.5)) clients.push(client('does not wait', tokenTime / chance.one(1, 2, 5, 100)));
  if (chance.of(0.3)) clients.push(client('at once', tokenTime * chance.one(1, 20, 200)));
  return clients;
}

/** Microseconds until a client sends again. */
function nextAt(chance: Chance, { kind, pause }: Client, said: string, now: number): number {
  const spent = Math.floor(pause * (0.5 + chance.below(1))) + 1;
  const [outcome, ...words] = said.split(' ');
  if (kind === 'does not wait' || kind === 'at once') return spent;
  if (outcome !== 'refused' && outcome !== 'banned') return outcome === 'admitted' ? spent : 5 * SECOND;
  const wait = Math.max(0, Number(words[9]) - now);
  // Most clients do not wait for the end of a long ban, because otherwise the history would be mostly waiting.
  if (wait > 600 * SECOND && chance.of(0.8)) return Math.floor(chance.below(60 * SECOND));
  return wait + spent + (kind === 'waits late' ? Math.floor(chance.below(wait)) : 0);
}
