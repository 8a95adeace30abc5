import type { Verdict } from '../../gateway/limiter/limiter.ts';

/** Statements that must hold after every step. The judge checks them. */
export const INVARIANTS = {
  exact: 'Redis admits a request if both buckets hold a token, and refuses it otherwise',
  'decided once': 'Redis decides a request at most once, and each admitted answer is one that Redis admitted',
  'slow is not down': 'a gateway that gets all replies in time decides with Redis, and answers every request',
  'retry time': 'at the retry time, a lone client is admitted; after a first refusal, that time is not too late',
  'local limit': 'without Redis, a gateway admits at most the limit, starting from its last known level',
  'never charged twice': 'no local admission is charged twice',
  charged: 'a local admission is charged within 2 s of contact, until the bucket is one minute limit below zero',
  'binds here': 'an acknowledged change is in force for every later answer from the gateway that acknowledged it',
  'binds everywhere':
    'an acknowledged change is in force on other gateways within 1 s of contact, even if contact is lost later',
  'polite is not banned': 'a client that waits until the retry time of each refusal is never banned',
  'hammer is banned': 'a client that continues at 10 or 100 times the limit is banned at the computed time',
  'never 401': 'a valid key is never rejected as invalid',
  answered: 'every request is answered within 2.5 s',
  recovers: 'within 3 s of the last fault, every gateway decides with Redis again',
} as const;

export type Invariant = keyof typeof INVARIANTS;

export interface Violation {
  readonly invariant: Invariant;
  /** The virtual time in ms. */
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
  /** Whether the gateway was not connected to Redis when the request was sent, so that Redis never received it. */
  readonly isOffline: boolean;
  /** The time of the last refusal, if the client has since waited until its retry time. */
  readonly waitedSince: number | undefined;
}

/** Undefined means a 503. */
export type Answer = Verdict | undefined;

/** A change by an operator that later answers must respect. */
export interface Bond {
  readonly id: string;
  /** A later change of the same group replaces it. */
  readonly group: string;
  readonly gateway: number;
  readonly what: string;
  /** The change is in force between these times, in virtual ms. They are unknown until the change is acknowledged. */
  from: number;
  until: number;
  isBroken(request: Request, verdict: Verdict): boolean;
}
