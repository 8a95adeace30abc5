import type { Contender, ContenderName } from './contenders.ts';
import { type Ask, LIST, listsOf } from './load/asks.ts';
import { aDay, OVER_LIMIT } from './load/day.ts';
import { makeUpKeys } from './setup/keys.ts';
import { PETS } from './setup/stage.ts';

/** The loads on the contenders. */
export interface Scenario {
  readonly name: string;
  readonly title: string;
  readonly connections: number;
  /** The requests, which are sent in turn. */
  asks(contender: Contender): readonly Ask[];
  /** The fraction of requests that are refused in a valid round. */
  readonly refused: number;
  /** The contenders that can take part. */
  readonly contenders: readonly ContenderName[];
  /**
   * If set, requests are sent at a fixed rate: half the maximum of the first contender in the scenario of this name.
   * Otherwise they are sent as fast as possible.
   */
  readonly halfOf?: string;
  /** Whether the scenario is measured only if it is requested by name. */
  readonly isOptional?: boolean;
}

const LIMITERS = [
  'gateway',
  'gateway-base',
  'gateway-quiet',
  'floor',
  'nginx-lua',
  'fastify',
  'express',
  'http-proxy-3',
] as const;
const EVERYONE = [...LIMITERS, 'nginx', 'core'] as const;
const BANNING = ['gateway', 'gateway-base', 'gateway-quiet', 'nginx-lua', 'http-proxy-3'] as const;

const hot = ({ keys }: Contender) => listsOf([keys.hot]);
let madeUp: readonly Ask[] | undefined;
const days = new Map<Contender, readonly Ask[]>();

function dayOf(contender: Contender): readonly Ask[] {
  const { many, manyOver } = contender.keys;
  const day = days.get(contender) ?? aDay(many, manyOver, PETS);
  days.set(contender, day);
  return day;
}

const day = (connections: number): Scenario => ({
  name: `day-${connections}`,
  title: `a real day's mix: 1,000 keys by Zipf, 90 % lists, 5 % pets, 5 % POST, a tenth refused, ${connections} connection${connections === 1 ? '' : 's'}`,
  connections,
  asks: dayOf,
  refused: OVER_LIMIT,
  contenders: LIMITERS,
});

const DAY = day(64);

const list = (connections: number): Scenario => ({
  name: `list-${connections}`,
  title: `GET a list of 20, ${connections} connection${connections === 1 ? '' : 's'}, one hot key`,
  connections,
  asks: hot,
  refused: 0,
  contenders: EVERYONE,
});

export const SCENARIOS: readonly Scenario[] = [
  DAY,
  {
    ...DAY,
    name: 'day-half',
    title: 'the same at half the maximum of the first contender, open loop',
    contenders: ['gateway', 'gateway-base', 'nginx-lua'],
    halfOf: DAY.name,
  },
  ...[1, 8, 256].map((connections) => ({ ...day(connections), isOptional: true })),
  ...[1, 8, 32, 128, 512].map(list),
  {
    name: 'post-32',
    title: 'POST a pet, 32 connections',
    connections: 32,
    asks: ({ keys }) => [{ method: 'POST', path: LIST, key: keys.hot }],
    refused: 0,
    contenders: EVERYONE,
  },
  {
    name: 'keys-1000',
    title: 'GET a list of 20, 32 connections, 1,000 keys in turn',
    connections: 32,
    asks: ({ keys }) => listsOf(keys.many),
    refused: 0,
    contenders: LIMITERS,
  },
  {
    name: 'over-limit-32',
    title: 'a key far over its limit: 429, 32 connections',
    connections: 32,
    asks: ({ keys }) => listsOf([keys.over]),
    refused: 1,
    contenders: LIMITERS,
  },
  {
    name: 'banned-32',
    title: 'a banned key: 429, 32 connections',
    connections: 32,
    asks: ({ keys }) => listsOf([keys.banned]),
    refused: 1,
    contenders: BANNING,
  },
  {
    name: 'unknown-32',
    title: '10,000 keys that nobody issued, in turn: 401 or 429, 32 connections',
    connections: 32,
    asks: () => (madeUp ??= listsOf(makeUpKeys())),
    refused: 1,
    contenders: LIMITERS,
  },
  {
    ...list(128),
    name: 'workers-128',
    title: 'GET a list of 20, 128 connections, one and two worker processes',
    contenders: ['gateway', 'gateway-2', 'nginx-lua', 'nginx-lua-2'],
  },
  { ...list(32), name: 'embedded-32', contenders: ['gateway-embedded', 'gateway', 'nginx-lua'] },
  {
    ...list(32),
    name: 'half-load',
    title: 'GET a list of 20 at half the maximum of the first contender, open loop, 32 connections',
    contenders: ['gateway', 'gateway-base', 'gateway-quiet', 'nginx-lua', 'nginx', 'core'],
    halfOf: 'list-32',
  },
];
