import type { Command } from 'ioredis';
import { credentialOf } from '../../gateway/limiter/credential.ts';
import type { Decision, Limiter, Verdict } from '../../gateway/limiter/limiter.ts';
import type { Plan, PlanTable } from '../../gateway/limiter/plans.ts';
import type { Wrappers } from './gateway.ts';
import type { Invariant } from './invariants.ts';
import type { Server } from './server.ts';

/** A deliberate break that acts like a bug in a gateway or in decide.lua. */
export interface Break extends Wrappers {
  server?(server: Server): void;
}

/** Changes the verdict or the error of each decision in a gateway. */
const decides =
  (change: (verdict: Promise<Verdict>, limiter: Limiter) => Promise<Verdict>) =>
  (limiter: Limiter): Limiter => ({
    decide: (credential) => change(limiter.decide(credential), limiter),
    peek: (credential) => limiter.peek(credential),
  });

const mapped = (change: (verdict: Verdict) => Verdict) => decides(async (verdict) => change(await verdict));

const withRetry = (verdict: Verdict, moreSeconds: number): Verdict =>
  verdict.outcome === 'refused' ? { ...verdict, retryAt: (verdict.retryAt ?? 0) + moreSeconds * 1e6 } : verdict;

const withPlans = (change: Plan) => (table: PlanTable) =>
  Object.fromEntries(
    Object.entries(table).map(([name, plan]) => [name, { ...plan, ...change }]),
  ) as unknown as PlanTable;

const withFullBuckets = (verdict: Decision): Decision => ({
  ...verdict,
  buckets: verdict.buckets.map((bucket) => ({ ...bucket, tokens: bucket.limit, fraction: 0 })),
});

/** Replaces the execution of decide.lua. */
const executes =
  (change: (execute: Server['execute'], server: Server) => Server['execute']) =>
  (server: Server): void => {
    server.execute = change(server.execute.bind(server), server);
  };

/** Sends some commands twice. */
const sendsTwice =
  (isMeant: (command: Command) => boolean) =>
  (server: Server): void => {
    const run = server.run.bind(server);
    server.run = async (gateway, command) => {
      if (isMeant(command)) await run(gateway, command);
      return await run(gateway, command);
    };
  };

/** The breaks by name, each with the invariant that detects it. */
export const BREAKS: Readonly<Record<string, Break & { readonly finds: Invariant }>> = {
  'a call is sent twice': {
    finds: 'decided once',
    server: sendsTwice(({ name }) => name === 'evalsha'),
  },
  'a charge is sent twice': {
    finds: 'never charged twice',
    server: sendsTwice(({ args }) => args.some((arg) => String(arg).startsWith('charge '))),
  },
  'local admissions are not charged': {
    finds: 'charged',
    locals: (clients) => ({
      decide: (credential, charge) => clients.decide(credential, charge === 'peek' ? charge : 'not again'),
    }),
  },
  'changes by other gateways are not applied': { finds: 'binds everywhere', isDeaf: true },
  'one gateway uses its own clock': {
    finds: 'exact',
    server: executes((execute) => (gateway, name, args) => {
      const clock = 2 + Number(args[1]);
      return execute(gateway, name, args.with(clock, String(Number(args[clock]) + (gateway === 'g1' ? 900_000 : 0))));
    }),
  },
  'the retry time is twenty seconds too late': {
    finds: 'retry time',
    server: executes((execute) => async (...call) => {
      const verdicts = await execute(...call);
      return verdicts.map((text) =>
        text.replace(/^(refused(?: \S+){5}) (\d+)/, (_, words, at) => `${words} ${Number(at) + 2e7}`),
      );
    }),
  },
  'the retry time is two seconds too early': {
    finds: 'retry time',
    limiter: mapped((verdict) => withRetry(verdict, -2)),
  },
  'buckets are full while Redis is down': {
    finds: 'local limit',
    clients(clients) {
      const note = clients.note.bind(clients);
      clients.note = (credential, verdict, askedAt) =>
        note(credential, 'buckets' in verdict ? withFullBuckets(verdict) : verdict, askedAt);
    },
  },
  'without Redis, everything is admitted': {
    finds: 'local limit',
    limiter: mapped((verdict) =>
      'buckets' in verdict && verdict.mode === 'local' ? ({ ...verdict, outcome: 'admitted' } as Verdict) : verdict,
    ),
  },
  'the deadline is only 20 ms': { finds: 'slow is not down', timeoutMs: 20 },
  'every other refusal becomes a ban': {
    finds: 'polite is not banned',
    limiter(limiter) {
      let refused = 0;
      const ban = (verdict: Verdict): Verdict => {
        if (verdict.outcome !== 'refused' || ++refused % 2 !== 0) return verdict;
        return { ...verdict, outcome: 'banned', bannedUntil: verdict.now + 3e8, retryAt: verdict.now + 3e8 };
      };
      return mapped(ban)(limiter);
    },
  },
  'the grace period is ignored': { finds: 'hammer is banned', plans: withPlans({ ban_grace_seconds: 0 }) },
  'strikes never cause a ban': { finds: 'hammer is banned', plans: withPlans({ ban_after: 1_000_000 }) },
  'a gateway does not apply its own changes': { finds: 'binds here', announce: () => async () => {} },
  'scope and address are not checked': {
    finds: 'binds here',
    limiter: (limiter) => ({
      decide: ({ id, digest }) => limiter.decide(credentialOf(id, digest)),
      peek: (credential) => limiter.peek(credential),
    }),
  },
  'errors become 401s': {
    finds: 'never 401',
    limiter: decides((verdict) => verdict.catch(() => ({ outcome: 'unauthorized', reason: 'unknown' }))),
  },
  'a failed decision is never answered': {
    finds: 'answered',
    limiter: decides((verdict) => verdict.catch(() => new Promise<never>(() => {}))),
  },
  'a gateway does not return to Redis': {
    finds: 'recovers',
    limiter(limiter) {
      let hasFailed = false;
      return {
        async decide(credential) {
          const verdict = await limiter.decide(credential);
          hasFailed ||= 'mode' in verdict && verdict.mode === 'local';
          return verdict;
        },
        peek: (credential) => (hasFailed ? Promise.reject(new Error('Redis is down.')) : limiter.peek(credential)),
      };
    },
  },
};
