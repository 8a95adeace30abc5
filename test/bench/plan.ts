import { type ContenderName, DESCRIPTIONS } from './contenders.ts';
import { SCENARIOS, type Scenario } from './scenarios.ts';

/** How long a run takes, and what for. */
export interface Plan {
  readonly parts: readonly PlannedScenario[];
  /** Of a round. wrk knows whole seconds only. */
  readonly seconds: number;
}

export interface PlannedScenario {
  readonly scenario: Scenario;
  readonly contenders: readonly ContenderName[];
  readonly rounds: number;
  /** Those of them that take part in every third round only. */
  readonly seldom: readonly ContenderName[];
}

export interface Wishes {
  readonly mode: 'quick' | 'default' | 'full';
  readonly only?: readonly string[] | undefined;
  readonly scenario?: readonly string[] | undefined;
  readonly rounds?: number | undefined;
  readonly seconds?: number | undefined;
  /** The folder of another checkout, which is compared too. */
  readonly base?: string | undefined;
  /** Whether all is measured against the floor. */
  readonly isFloor?: boolean;
  /** Whether the results are written into test/bench. */
  readonly isWritten?: boolean;
}

/** Where this gateway is set against the floor. */
export const FLOOR_SCENARIOS = ['day-1', 'day-8', 'day-64', 'day-256'];

/** The scenarios that the comparison stands on; the others show one side of it each. */
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
/** Who stands beside the point takes part less often, unless asked for: the ratio needs no finer measure. */
const SELDOM: readonly ContenderName[] = ['fastify', 'express', 'http-proxy-3'];
/** What a run takes beside its rounds: to start, to warm up before a scenario, and around each round. */
const START_SECONDS = 25;
const WARM_UP_SECONDS = 1.1;
const OVERHEAD_SECONDS = 0.15;

/** @throws naming what there is when a wish names what there is not */
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
    // What a proxy adds to the latency of the core takes the core to tell.
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
  if (unknown.length > 0) throw new Error(`There is no ${what} ${unknown.join(', ')}; there are ${known.join(', ')}.`);
}

/**
 * From so many connections on, a round is led in by a second that is not counted. Between its rounds a proxy lets its
 * connections to the core go. Node accepts a connection or so a turn, so opening all of them beside the load takes up to a
 * second: a matter of starting, not of serving.
 */
const CROWD = 64;
const LEAD_IN_SECONDS = 1;

export const leadInSeconds = ({ connections }: Scenario): number => (connections >= CROWD ? LEAD_IN_SECONDS : 0);

/** Who takes part in a round. */
export const takingPart = ({ contenders, seldom }: PlannedScenario, round: number): readonly ContenderName[] =>
  contenders.filter((name) => round % 3 === 0 || !seldom.includes(name));

export function estimateSeconds({ parts, seconds }: Plan): number {
  const durations = parts.map((part) => {
    const turns = Array.from({ length: part.rounds }, (_, round) => takingPart(part, round).length);
    const count = turns.reduce((sum, taking) => sum + taking, 0);
    const turn = leadInSeconds(part.scenario) + seconds + OVERHEAD_SECONDS;
    return count * turn + part.contenders.length * WARM_UP_SECONDS;
  });
  return durations.reduce((sum, duration) => sum + duration, START_SECONDS);
}
