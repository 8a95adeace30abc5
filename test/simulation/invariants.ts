import type { Verdict } from '../../gateway/limiter/limiter.ts';

/** What must hold after every step. The judge checks it. */
export const INVARIANTS = {
  exact: 'Redis admits a request exactly when both buckets hold a token, and refuses it otherwise',
  'asked once': 'Redis decides on a request at most once, and each admitted answer is one that Redis admitted',
  'slow is not away': 'a gateway whose calls are answered in time decides with Redis, and answers every request',
  'told time': 'the time in a refusal suffices for a lone client, and the first one is tight',
  'local limit': 'without Redis, a gateway admits at most the limit, from the level that it last knew',
  'never charged twice': 'no local admission is charged twice',
  charged: 'a local admission is charged within 2 s of contact, to at most a minute below zero',
  'binds here': 'an acknowledged change binds every later answer of the gateway that acknowledged it',
  'binds everywhere': 'it binds every other gateway within 1 s of contact, and losing contact does not undo it',
  'polite is not banned': 'a client that waits for the time in each refusal is never banned',
  'hammer is banned': 'a client that keeps on at 10 or 100 times the limit is banned at the computed time',
  'never 401': 'a valid key is never rejected as invalid',
  answered: 'every request is answered within 2.5 s',
  recovers: 'within 3 s of the last fault, every gateway decides with Redis again',
} as const;

export type Invariant = keyof typeof INVARIANTS;

export interface Violation {
  readonly invariant: Invariant;
  /** Virtual ms. */
  readonly at: number;
  readonly message: string;
}

/** A request that a client has sent. */
export interface Request {
  readonly gateway: number;
  readonly key: number;
  readonly id: string;
  readonly digest: string;
  readonly scope: 'read' | 'write';
  readonly address: string;
  readonly at: number;
  /** It was sent while its gateway was not connected to Redis, so Redis does not know of it. */
  readonly isOffline: boolean;
  /** When the client was refused, if it has since waited for the time in the refusal. */
  readonly waitedSince: number | undefined;
}

/** Undefined stands for a 503. */
export type Answer = Verdict | undefined;

/** A change by an operator. */
export interface Bond {
  readonly id: string;
  /** A later change of the same group replaces it. */
  readonly group: string;
  readonly gateway: number;
  readonly what: string;
  /** It binds between these times, in virtual ms. Until it is acknowledged, they are not known. */
  from: number;
  until: number;
  isBroken(request: Request, verdict: Verdict): boolean;
}
