import { PLAN_NAMES, type PlanName } from '../../gateway/access/plans.ts';
import { ModelKey, type ModelPlan, type ModelRecord } from './decision-model.ts';
import { generator } from './fleets.ts';
import { BEGIN, SECOND } from './limiters.ts';

/** Random histories of one key, with what the model says to each request: clients of all kinds, operators, a clock that jumps. */

export const SECRET = 'a'.repeat(64);
const OLD_SECRET = 'b'.repeat(64);
const WRONG_SECRET = 'c'.repeat(64);
const DAY = 86_400 * SECOND;

export type Plans = Readonly<Record<PlanName, ModelPlan>>;

export type Step =
  /** `said` has a verdict for each request, or one for a peek, which has the count 0. */
  | { type: 'ask'; now: number; secret: string; count: number; plans: Plans; said: readonly string[] }
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

  /** A whole number from 1 on; each size of number is as likely. */
  upTo(most: number): number {
    return Math.min(most, Math.floor(Math.exp(this.#next() * Math.log(most + 1))));
  }

  one<T>(...choices: readonly T[]): T {
    return choices[Math.floor(this.#next() * choices.length)] as T;
  }
}

function randomPlan(chance: Chance): ModelPlan {
  return {
    minute: chance.one(60, chance.upTo(20), chance.upTo(300), chance.upTo(1e9)),
    day: chance.one(1e9, 1e9, chance.upTo(60), chance.upTo(5_000), chance.upTo(1e9)),
    ban_after: chance.one(60, chance.upTo(12), chance.upTo(100), chance.upTo(1e9)),
    ban_within_seconds: chance.one(60, 60, chance.upTo(10), chance.upTo(600)),
    ban_seconds: chance.one(10, 300, chance.upTo(90_000)),
    mode: chance.of(0.05) ? 'shadow' : 'enforce',
  };
}

/** Enterprise has no limits of its own. */
const randomPlans = (chance: Chance): Plans => {
  const plans = Object.fromEntries(PLAN_NAMES.map((name) => [name, randomPlan(chance)])) as Record<PlanName, ModelPlan>;
  const { minute: _minute, day: _day, ...enterprise } = plans.enterprise;
  return { ...plans, enterprise };
};

/** @param met is told which rules were met */
export function randomWorld(seed: number, requests: number, met: Set<string>): World {
  const chance = new Chance(seed);
  let plans = randomPlans(chance);
  const plan = chance.one<PlanName>('free', 'pro', 'business', 'enterprise');
  const override = plan === 'enterprise' ? chance.of(0.9) : chance.of(0.15);
  const record: ModelRecord = { plan, secret: SECRET };
  if (override) Object.assign(record, { minute: chance.upTo(200), day: chance.one(1e9, chance.upTo(2_000)) });
  const key = new ModelKey({ ...record }, met);
  const minute = record.minute ?? plans[plan].minute ?? 1;
  const clients = randomClients(chance, minute);
  const steps: Step[] = [];

  let [now, skew, asked] = [BEGIN, 0, 0];
  const ask = (secret: string, count: number): readonly string[] => {
    const decide = () => key.decide(secret, plans, now + skew);
    const said = count === 0 ? [key.peek(secret, plans, now + skew)] : Array.from({ length: count }, decide);
    steps.push({ type: 'ask', now: now + skew, secret, count, plans, said });
    asked += said.length;
    return said;
  };
  const change = (changes: Partial<ModelRecord>) => {
    Object.assign(key.record, changes);
    steps.push({ type: 'record', changes });
  };
  function operate(): void {
    const what = chance.below(16);
    const later = now + skew + Math.floor(chance.below(chance.one(10, 200, 100_000) * SECOND));
    if (what < 3) skew += Math.floor(chance.below(chance.one(3, 100, 100_000) * SECOND)) * chance.one(-1, -1, 1);
    else if (what < 4) now += chance.one(SECOND, 60 * SECOND, 3_600 * SECOND, DAY);
    else if (what < 5) plans = { ...plans, [plan]: { ...plans[plan], ...pick(randomPlan(chance), plan, chance) } };
    else if (what < 6)
      change({ minute: chance.one(minute, undefined, chance.upTo(200)), day: chance.one(undefined, 1e9, 40) });
    else if (what < 6.5) change({ isDisabled: !key.record.isDisabled });
    else if (what < 7) change({ expiresAt: chance.one(undefined, later) });
    else if (what < 8) change({ oldSecret: { secret: OLD_SECRET, until: later } });
    else if (what < 9) {
      const until = later + (chance.of(0.5) ? 0 : 20 * SECOND);
      key.banUntil(until);
      steps.push({ type: 'ban', until });
    } else if (what < 12) {
      key.liftBan();
      steps.push({ type: 'lift' });
    } else ask(chance.one(WRONG_SECRET, OLD_SECRET), 1);
  }

  while (asked < requests) {
    const client = clients.reduce((first, other) => (other.at < first.at ? other : first));
    now = Math.max(now, client.at);
    const [last = ''] = ask(SECRET, client.kind === 'at once' ? chance.upTo(40) : 1).slice(-1);
    client.at = now + nextAt(chance, client, last, now + skew);
    if (chance.of(0.03)) ask(SECRET, 0);
    if (chance.of(0.02)) operate();
    if (key.record.isDisabled && chance.of(0.3)) change({ isDisabled: false });
    if (last.startsWith('expired') && chance.of(0.3)) change({ expiresAt: undefined });
  }
  return { record, steps };
}

/** One or two fields of a plan, of which enterprise has no limits. */
function pick(plan: ModelPlan, name: PlanName, chance: Chance): ModelPlan {
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

/** In how many ticks a client sends again. */
function nextAt(chance: Chance, { kind, pause }: Client, said: string, now: number): number {
  const spent = Math.floor(pause * (0.5 + chance.below(1))) + 1;
  const [outcome, ...words] = said.split(' ');
  if (kind === 'does not wait' || kind === 'at once') return spent;
  if (outcome !== 'refused' && outcome !== 'banned') return outcome === 'admitted' ? spent : 5 * SECOND;
  const told = Math.max(0, Number(words[9]) - now);
  // Nobody waits for the end of a long ban: the history would end with it.
  if (told > 600 * SECOND && chance.of(0.8)) return Math.floor(chance.below(60 * SECOND));
  return told + spent + (kind === 'waits late' ? Math.floor(chance.below(told)) : 0);
}
