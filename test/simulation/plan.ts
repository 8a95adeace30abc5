import { Random } from './random.ts';

/** What a seed makes of a run: its gateways and keys, and a list of steps, each of which can be left out. */

export const CLIENTS = ['polite', 'backs off', 'hammers', 'bursts'] as const;
export const FAULTS = ['slow', 'late', 'lossy', 'cut', 'restart', 'failover', 'full', 'demoted'] as const;
export const CHANGES = [
  // These two cannot be undone, and are rare.
  'revoke',
  'expire',
  'disable',
  'enable',
  'ban',
  'lift',
  'bind to a network',
  'unbind from networks',
  'read only',
  'read and write',
  'rotate',
  'set limit',
  'set plan limit',
  'shadow',
  'enforce',
] as const;

export type Step = { readonly at: number } & (
  | {
      readonly does: 'client';
      readonly kind: (typeof CLIENTS)[number];
      readonly key: number;
      /** Undefined: any gateway, a new one each time. */
      readonly gateway: number | undefined;
      readonly forMs: number;
      /** How many times the minute limit a hammer sends. */
      readonly times: number;
      readonly seed: string;
    }
  /** @property gateway undefined for all of them */
  | {
      readonly does: 'fault';
      readonly kind: (typeof FAULTS)[number];
      readonly gateway: number | undefined;
      readonly forMs: number;
    }
  | { readonly does: 'restart of a gateway'; readonly gateway: number; readonly forMs: number }
  | {
      readonly does: 'operator';
      readonly kind: (typeof CHANGES)[number];
      readonly key: number;
      readonly gateway: number;
      readonly value: number;
    }
);

export interface KeyPlan {
  readonly plan: 'free' | 'pro';
  /** Undefined: that of the plan. */
  readonly minute: number | undefined;
  readonly day: number;
}

export interface Plan {
  readonly seed: number;
  readonly gateways: number;
  /** The first has one polite client, the second one hammer, and operators leave both alone. */
  readonly keys: readonly KeyPlan[];
  readonly steps: readonly Step[];
  /** No fault but slowness, which takes no promise away. */
  readonly isCalm: boolean;
}

export const [LONE_KEY, HAMMERED_KEY] = [0, 1];
export const HAMMERED_MINUTE = 6;
const MOST_GATEWAYS = 3;
const SERVER_FAULTS = ['restart', 'failover', 'full', 'demoted'];

/** Of the keys that operators change, one has a limit of its own, and the other has that of its plan. */
const PLACES: Partial<Record<string, number>> = { 'set limit': 2, 'set plan limit': 3, shadow: 3, enforce: 3 };

export function planOf(seed: number, steps: number): Plan {
  const random = new Random(`seed ${seed}`);
  const isCalm = random.chance(0.3);
  const gateways = random.between(1, MOST_GATEWAYS);
  const limits = () => ({ minute: random.pick([4, 6, 12, 30, 60]), day: random.chance(0.2) ? 25 : 1_000 });
  const keys: KeyPlan[] = [
    { plan: 'free', ...limits(), minute: random.pick([4, 6, 12]) },
    { plan: 'free', minute: HAMMERED_MINUTE, day: 1_000 },
    { plan: 'pro', ...limits() },
    { plan: 'pro', ...limits(), minute: undefined },
  ];
  const lengthMs = steps * 750;
  const forMs = lengthMs;
  const made: Step[] = [
    { at: 0, does: 'client', kind: 'polite', key: LONE_KEY, gateway: undefined, forMs, times: 1, seed: `${seed} lone` },
  ];
  if (isCalm && random.chance(0.3)) {
    // Ten times the limit for as long as it takes to be banned is rare, because it takes many decisions.
    const times = random.chance(0.1) ? 10 : 100;
    const longMs = times === 10 ? 345_000 : 40_000;
    made.push({
      at: 0,
      does: 'client',
      kind: 'hammers',
      key: HAMMERED_KEY,
      gateway: 0,
      forMs: longMs,
      times,
      seed: '',
    });
  }
  const faults = isCalm ? (['slow'] as const) : FAULTS.filter(() => random.chance(0.6));
  while (made.length < steps) made.push(stepOf(random, { at: random.between(0, lengthMs), gateways, faults, isCalm }));
  return { seed, gateways, keys, steps: made.sort((a, b) => a.at - b.at), isCalm };
}

interface About {
  readonly at: number;
  readonly gateways: number;
  readonly faults: readonly (typeof FAULTS)[number][];
  readonly isCalm: boolean;
}

function stepOf(random: Random, { at, gateways, faults, isCalm }: About): Step {
  const gateway = random.between(0, gateways - 1);
  const key = random.between(HAMMERED_KEY + 1, HAMMERED_KEY + 2);
  if (random.chance(0.4)) {
    const where = random.chance(0.5) ? gateway : undefined;
    const [kind, forMs] = [random.pick(CLIENTS), random.between(1_000, 10_000)];
    const times = random.pick([2, 10, 20]);
    return { at, does: 'client', kind, key, gateway: where, forMs, times, seed: `${at} ${random.next()}` };
  }
  if (faults.length > 0 && random.chance(0.5)) {
    const kind = random.pick(faults);
    const where = SERVER_FAULTS.includes(kind) || random.chance(0.3) ? undefined : gateway;
    return { at, does: 'fault', kind, gateway: where, forMs: random.between(50, random.pick([500, 5_000])) };
  }
  if (!isCalm && random.chance(0.1))
    return { at, does: 'restart of a gateway', gateway, forMs: random.between(0, 2_000) };
  const kind = random.pick(CHANGES.slice(random.chance(0.12) ? 0 : 2));
  return { at, does: 'operator', kind, key: PLACES[kind] ?? key, gateway, value: random.pick([3, 5, 10, 20, 40]) };
}

/** A step in words, for a history. */
export function describe(step: Step): string {
  const place = step.gateway === undefined ? 'everywhere' : `at g${step.gateway}`;
  switch (step.does) {
    case 'client':
      return `a client ${step.kind} with k${step.key} ${place} for ${step.forMs} ms${step.kind === 'hammers' ? `, ${step.times} times the limit` : ''}`;
    case 'fault':
      return `fault: ${step.kind} ${place} for ${step.forMs} ms`;
    case 'restart of a gateway':
      return `g${step.gateway} is restarted, and away for ${step.forMs} ms`;
    case 'operator':
      return `an operator ${place}: ${step.kind}${step.kind.startsWith('set') ? ` ${step.value}` : ''} (k${step.key})`;
  }
}
