import { Random } from './random.ts';

/** The run that a seed determines: gateways, keys and steps. Each step can be omitted. */

const CLIENTS = ['polite', 'backs off', 'hammers', 'bursts'] as const;
const OF_LINKS = ['slow', 'late', 'lossy', 'cut'] as const;
const FAULTS = [...OF_LINKS, 'restart', 'failover', 'full', 'demoted'] as const;
/** Changes that cannot be undone. They are rare. */
const ENDS = ['revoke', 'expire'] as const;
const BINDINGS = ['bind to a network', 'unbind from networks', 'read only', 'read and write', 'rotate'] as const;
const LIMITS = ['set limit', 'set plan limit', 'shadow', 'enforce'] as const;
const CHANGES = ['disable', 'enable', 'ban', 'lift', ...BINDINGS, ...LIMITS] as const;

interface At {
  readonly at: number;
  /** If undefined, the step affects all gateways. A client then uses a random gateway for each request. */
  readonly gateway: number | undefined;
}

export interface ClientStep extends At {
  readonly does: 'client';
  readonly kind: (typeof CLIENTS)[number];
  readonly key: number;
  readonly forMs: number;
  /** The request rate of a client of the kind `hammers`, as a multiple of the minute limit. */
  readonly times: number;
  readonly seed: string;
}

export interface FaultStep extends At {
  readonly does: 'fault';
  readonly kind: (typeof FAULTS)[number];
  readonly forMs: number;
}

export interface RestartStep extends At {
  readonly does: 'restart of a gateway';
  readonly gateway: number;
  readonly forMs: number;
}

export interface OperatorStep extends At {
  readonly does: 'operator';
  readonly kind: (typeof CHANGES)[number] | (typeof ENDS)[number];
  readonly key: number;
  readonly gateway: number;
  readonly value: number;
}

export type Step = ClientStep | FaultStep | RestartStep | OperatorStep;

export interface Plan {
  readonly seed: number;
  readonly gateways: number;
  readonly keys: readonly {
    readonly plan: 'free' | 'pro';
    /** If undefined, the limit of the plan applies. */
    readonly minute: number | undefined;
    readonly day: number;
  }[];
  readonly steps: readonly Step[];
}

/**
 * Operators do not change these two keys. One has a single polite client, the other a single client that ignores its
 * limit.
 */
export const [LONE_KEY, HAMMERED_KEY] = [0, 1];
/** Operators change these two keys: one has its own limit, the other the limit of its plan. */
const [OWN_LIMIT_KEY, PLAN_LIMIT_KEY] = [2, 3];
export const HAMMERED_MINUTE = 6;
const MOST_GATEWAYS = 3;
const STEP_MS = 750;

export function planOf(seed: number, steps: number): Plan {
  const random = new Random(`seed ${seed}`);
  // A calm seed has no fault except a slow network.
  const isCalm = random.chance(0.3);
  const [gateways, forMs] = [random.between(1, MOST_GATEWAYS), steps * STEP_MS];
  const minute = () => random.pick([4, 6, 12, 30, 60]);
  const day = () => (random.chance(0.2) ? 25 : 1_000);
  const keys = [
    { plan: 'free', minute: random.pick([4, 6, 12]), day: day() },
    { plan: 'free', minute: HAMMERED_MINUTE, day: 1_000 },
    { plan: 'pro', minute: minute(), day: day() },
    { plan: 'pro', minute: undefined, day: day() },
  ] as const;
  const client = { at: 0, does: 'client', gateway: undefined, seed: `${seed}` } as const;
  const made: Step[] = [{ ...client, kind: 'polite', key: LONE_KEY, forMs, times: 1 }];
  if (isCalm && random.chance(0.3)) {
    // At ten times the limit, it takes many decisions until the ban, so this rate is rare.
    const [times, hammerMs] = random.chance(0.1) ? [10, 360_000] : [100, 40_000];
    made.push({ ...client, kind: 'hammers', key: HAMMERED_KEY, forMs: hammerMs, times });
  }
  const faults = isCalm ? (['slow'] as const) : FAULTS.filter(() => random.chance(0.6));
  while (made.length < steps) made.push(stepOf(random, random.between(0, forMs), { gateways, faults, isCalm }));
  return { seed, gateways, keys, steps: made.sort((a, b) => a.at - b.at) };
}

interface World {
  readonly gateways: number;
  readonly faults: readonly FaultStep['kind'][];
  readonly isCalm: boolean;
}

function stepOf(random: Random, at: number, { gateways, faults, isCalm }: World): Step {
  const one = random.between(0, gateways - 1);
  const key = random.pick([OWN_LIMIT_KEY, PLAN_LIMIT_KEY]);
  if (random.chance(0.4)) {
    const gateway = random.chance(0.5) ? one : undefined;
    const [kind, forMs, times] = [random.pick(CLIENTS), random.between(1_000, 10_000), random.pick([2, 10, 20])];
    return { at, does: 'client', kind, key, gateway, forMs, times, seed: `${at} ${random.next()}` };
  }
  if (faults.length > 0 && random.chance(0.5)) {
    const kind = random.pick(faults);
    const gateway = OF_LINKS.some((name) => name === kind) && random.chance(0.7) ? one : undefined;
    return { at, does: 'fault', kind, gateway, forMs: random.between(50, random.pick([500, 5_000])) };
  }
  if (!isCalm && random.chance(0.1))
    return { at, does: 'restart of a gateway', gateway: one, forMs: random.between(0, 2_000) };
  const kind = random.chance(0.1) ? random.pick(ENDS) : random.pick(CHANGES);
  const place = kind === 'set limit' ? OWN_LIMIT_KEY : LIMITS.some((limit) => limit === kind) ? PLAN_LIMIT_KEY : key;
  return { at, does: 'operator', kind, key: place, gateway: one, value: random.pick([3, 5, 10, 20, 40]) };
}

/** Describes a step for the history. */
export function describe(step: Step): string {
  const place = step.gateway === undefined ? 'everywhere' : `at g${step.gateway}`;
  switch (step.does) {
    case 'client': {
      const rate = step.kind === 'hammers' ? `, ${step.times} times the limit` : '';
      return `a client ${step.kind} with k${step.key} ${place} for ${step.forMs} ms${rate}`;
    }
    case 'fault':
      return `fault: ${step.kind} ${place} for ${step.forMs} ms`;
    case 'restart of a gateway':
      return `g${step.gateway} restarts and is down for ${step.forMs} ms`;
    case 'operator':
      return `an operator ${place}: ${step.kind}${step.kind.startsWith('set') ? ` ${step.value}` : ''} (k${step.key})`;
  }
}
