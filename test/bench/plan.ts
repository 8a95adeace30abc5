import { type ContenderName, DESCRIPTIONS } from './contenders.ts';
import { SCENARIOS, type Scenario } from './scenarios.ts';

/** The parts of a run, and the length of its rounds. */
export interface Plan {
  readonly parts: readonly PlannedScenario[];
  /** The length of a round. wrk accepts only whole seconds. */
  readonly seconds: number;
}

export interface PlannedScenario {
  readonly scenario: Scenario;
  readonly contenders: readonly ContenderName[];
  readonly rounds: number;
  /** The contenders that take part only in every third round. */
  readonly seldom: readonly ContenderName[];
}

export interface Wishes {
  readonly mode: 'quick' | 'default' | 'full';
  readonly only?: readonly string[] | undefined;
  readonly scenario?: readonly string[] | undefined;
  readonly rounds?: number | undefined;
  readonly seconds?: number | undefined;
  /** The folder of another checkout to compare with. */
  readonly base?: string | undefined;
  /** Whether every scenario is measured against the floor. */
  readonly isFloor?: boolean;
  /** Whether the results are written into test/bench. */
  readonly isWritten?: boolean;
}

/** The scenarios in which this gateway is compared with the floor. */
export const FLOOR_SCENARIOS = ['day-1', 'day-8', 'day-64', 'day-256'];

/** The main scenarios of the comparison; each of the others shows one aspect. */
const MAIN_SCENARIOS = ['day-64', 'list-32', 'list-128'];
const MAIN_CONTENDERS: readonly ContenderName[] = ['gateway', 'nginx-lua', 'nginx', 'core'];

const MODES = {
  quick: { main: 5, side: 0, mainContenders: MAIN_CONTENDERS, sideContenders: [] },
  default: {
    main: 5,
    side: 3,
    mainContenders: Object.keys(DESCRIPTIONS),
    sideContenders: ['gateway', 'gateway-2', 'nginx-lua', 'nginx-lua-2', 'gateway-embedded'],
  },
  full: { main: 15, side: 3, mainContenders: Object.keys(DESCRIPTIONS), sideContenders: Object.keys(DESCRIPTIONS) },
};

const SECONDS = 2;
/** Unless requested by name, these contenders take part less often, because their ratios need less precision. */
const SELDOM: readonly ContenderName[] = ['fastify', 'express', 'http-proxy-3'];
/** @throws {Error} that lists the valid values, if an option has an unknown one */
export function makePlan({ mode, only, scenario: named, rounds, seconds = SECONDS, base }: Wishes): Plan {
  check(only, Object.keys(DESCRIPTIONS), 'contender');
  check(
    named,
    SCENARIOS.map(({ name }) => name),
    'scenario',
  );
  const parts = SCENARIOS.filter(({ name, isOptional }) => named?.includes(name) ?? !isOptional).map((scenario) => {
    const isMain = MAIN_SCENARIOS.includes(scenario.name);
    const { main, side, mainContenders, sideContenders } = MODES[named !== undefined && !isMain ? 'full' : mode];
    // The latency that a proxy adds can only be computed from that of the core.
    const atSide = scenario.halfOf ? [...sideContenders, 'core'] : sideContenders;
    const wanted: readonly string[] = only ?? (isMain ? mainContenders : atSide);
    return {
      scenario,
      contenders: scenario.contenders.filter((name) =>
        name === 'gateway-base' ? base !== undefined : wanted.includes(name),
      ),
      rounds: rounds ?? (isMain ? main : side),
      seldom: only === undefined ? SELDOM : [],
    };
  });
  return { parts: parts.filter((part) => part.rounds > 0 && part.contenders.length > 0), seconds };
}

function check(names: readonly string[] | undefined, known: readonly string[], what: string): void {
  const unknown = names?.filter((name) => !known.includes(name)) ?? [];
  if (unknown.length > 0)
    throw new Error(`Unknown ${what}: ${unknown.join(', ')}. The ${what}s are ${known.join(', ')}.`);
}

/**
 * From this number of connections on, a round begins with a second that is not measured. Between its rounds, a proxy
 * closes its connections to the core. Node accepts about one connection per event loop turn, so reopening all of them
 * under load takes up to a second, and the round would measure that.
 */
const CROWD = 64;
const LEAD_IN_SECONDS = 1;

export const leadInSeconds = ({ connections }: Scenario): number => (connections >= CROWD ? LEAD_IN_SECONDS : 0);

/** The contenders of a round. */
export const takingPart = ({ contenders, seldom }: PlannedScenario, round: number): readonly ContenderName[] =>
  contenders.filter((name) => round % 3 === 0 || !seldom.includes(name));
