import type { Contender, ContenderName } from './contenders.ts';
import { makeUpKeys } from './setup/keys.ts';
import { NEW_PET } from './setup/verify.ts';

/** What is asked of the contenders. */
export interface Scenario {
  readonly name: string;
  readonly title: string;
  readonly connections: number;
  /** They take turns. */
  keys(contender: Contender): readonly string[];
  /** Sent as a POST; a GET of the list without it. */
  readonly body?: string;
  /** What a valid round is answered with. */
  readonly expect: 'served' | 'refused';
  /** Who can do this at all. */
  readonly contenders: readonly ContenderName[];
  /** Sent at a fixed rate, half of what the first of them can do, in place of as fast as it goes. */
  readonly isHalfLoad?: boolean;
}

const LIMITERS = ['gateway', 'gateway-quiet', 'nginx-lua', 'fastify', 'express', 'http-proxy-3'] as const;
const EVERYONE = [...LIMITERS, 'nginx', 'core'] as const;
const BANNING = ['gateway', 'gateway-quiet', 'nginx-lua', 'http-proxy-3'] as const;

const hot = ({ keys }: Contender): readonly string[] => [keys.hot];
let madeUp: readonly string[] | undefined;

const list = (connections: number): Scenario => ({
  name: `list-${connections}`,
  title: `GET a list of 20, ${connections} connection${connections === 1 ? '' : 's'}, one hot key`,
  connections,
  keys: hot,
  expect: 'served',
  contenders: EVERYONE,
});

export const SCENARIOS: readonly Scenario[] = [
  ...[1, 8, 32, 128, 512].map(list),
  {
    name: 'post-32',
    title: 'POST a pet, 32 connections',
    connections: 32,
    keys: hot,
    body: NEW_PET,
    expect: 'served',
    contenders: EVERYONE,
  },
  {
    name: 'keys-1000',
    title: 'GET a list of 20, 32 connections, 1,000 keys in turn',
    connections: 32,
    keys: ({ keys }) => keys.many,
    expect: 'served',
    contenders: LIMITERS,
  },
  {
    name: 'over-limit-32',
    title: 'a key far over its limit: 429, 32 connections',
    connections: 32,
    keys: ({ keys }) => [keys.over],
    expect: 'refused',
    contenders: LIMITERS,
  },
  {
    name: 'banned-32',
    title: 'a banned key: 429, 32 connections',
    connections: 32,
    keys: ({ keys }) => [keys.banned],
    expect: 'refused',
    contenders: BANNING,
  },
  {
    name: 'unknown-32',
    title: '10,000 keys that nobody issued, in turn: 401 or 429, 32 connections',
    connections: 32,
    keys: () => (madeUp ??= makeUpKeys()),
    expect: 'refused',
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
    title: 'GET a list of 20 at half of what the first can do, open loop, 32 connections',
    contenders: ['gateway', 'gateway-quiet', 'nginx-lua', 'nginx', 'core'],
    isHalfLoad: true,
  },
];
