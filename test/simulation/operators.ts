import { hash } from 'node:crypto';
import { credentialOf, SCOPES, type Secret } from '../../gateway/limiter/credential.ts';
import type { KeyChange, KeyRecord } from '../../gateway/limiter/key-record.ts';
import type { Decision, Verdict } from '../../gateway/limiter/limiter.ts';
import { parseNetwork } from '../../gateway/limiter/networks.ts';
import type { Activity } from '../../gateway/stores/activity-entry.ts';
import type { Gateway } from './gateway.ts';
import type { Bond, Request } from './invariants.ts';
import type { Step } from './plan.ts';
import type { VirtualTime } from './virtual-time.ts';

export type OperatorStep = Extract<Step, { does: 'operator' }>;

/** A key as its owner and the operators see it. */
export interface SimulatedKey {
  readonly id: string;
  /** The newest last. */
  readonly digests: string[];
  /** Ends of the bans that operators have set. */
  readonly bans: number[];
}

export const INSIDE = '10.1.2.3';
export const OUTSIDE = '192.0.2.1';
const NETWORK = parseNetwork('10.0.0.0/8') ?? '';
/** The clock of a gateway that is away from Redis is behind by the time that Redis' last answer took. */
const CLOCKS_APART_MS = 1_000;

export const digestOf = (text: string) => hash('sha256', text);

export const secretOf = (digest: string): Secret => ({
  id: digest.slice(0, 8),
  name: '',
  digest,
  scope: SCOPES,
  networks: [],
  createdAt: 0,
});

interface Change {
  readonly group: string;
  /** It can make a request invalid. */
  readonly mayInvalidate?: true;
  readonly isBroken: Bond['isBroken'];
  make(gateway: Gateway): Promise<unknown>;
}

const admits = (outcome: string): boolean => outcome === 'admitted' || outcome === 'refused';
const minuteIn = (verdict: Decision): number | undefined => verdict.buckets[0]?.limit;

/** What an operator does in a step, and what an answer looks like that does not respect it. */
export function changeIn(step: OperatorStep, key: SimulatedKey, time: VirtualTime): Change {
  const now = time.microseconds;
  const activity: Activity = {
    actor: 'operator',
    action: 'key.change',
    target: key.id,
    reason: `at ${now}`,
    via: 'api',
    changes: [],
  };
  const changed = (make: (record: KeyRecord) => KeyChange) => async (gateway: Gateway) =>
    (await gateway.keys.change(key.id, (record) => ({ ...make(record), activity }))) !== undefined;
  const forSecrets = (change: Partial<Secret>) =>
    changed(({ secrets }) => ({ record: { secrets: secrets.map((secret) => ({ ...secret, ...change })) } }));
  const planSet = (field: string, value: string) => (gateway: Gateway) =>
    gateway.plans.change(
      { [`pro.${field}`]: value },
      { author: 'operator', reason: '', action: 'set', entriesFor: () => [] },
    );
  switch (step.kind) {
    case 'revoke':
      return {
        group: 'revoked',
        mayInvalidate: true,
        make: (gateway) => gateway.keys.remove(key.id, { ...activity, action: 'key.revoke' }),
        isBroken: (_, { outcome }) => outcome !== 'unauthorized',
      };
    case 'disable':
      return {
        group: 'disabled',
        mayInvalidate: true,
        make: changed(() => ({ record: { disabled: true } })),
        isBroken: (_, { outcome }) => outcome !== 'unauthorized',
      };
    case 'enable':
      return {
        group: 'disabled',
        make: changed(() => ({ record: { disabled: undefined } })),
        isBroken: (_, verdict) => verdict.outcome === 'unauthorized' && verdict.reason === 'disabled',
      };
    case 'ban': {
      const until = now + step.value * 1e6;
      key.bans.push(until);
      return {
        group: 'ban',
        make: changed(() => ({ ban: { until, text: 'simulated' } })),
        isBroken: (_, verdict) => admits(verdict.outcome) && (verdict as Decision).now < until,
      };
    }
    case 'lift': {
      const lifted = [...key.bans];
      return {
        group: 'ban',
        make: changed(() => ({ ban: 'lift' })),
        isBroken: (_, verdict) => verdict.outcome === 'banned' && lifted.includes(verdict.bannedUntil),
      };
    }
    case 'bind to a network':
      return {
        group: 'network',
        mayInvalidate: true,
        make: forSecrets({ networks: [NETWORK] }),
        isBroken: ({ address }, { outcome }) => address === OUTSIDE && outcome !== 'unauthorized',
      };
    case 'unbind from networks':
      return {
        group: 'network',
        make: forSecrets({ networks: [] }),
        isBroken: (_, verdict) => verdict.outcome === 'unauthorized' && verdict.reason === 'elsewhere',
      };
    case 'read only':
      return {
        group: 'scope',
        make: forSecrets({ scope: ['read'] }),
        isBroken: ({ scope }, { outcome }) => scope === 'write' && admits(outcome),
      };
    case 'read and write':
      return {
        group: 'scope',
        make: forSecrets({ scope: SCOPES }),
        isBroken: (_, { outcome }) => outcome === 'forbidden',
      };
    case 'rotate': {
      const old = [...key.digests];
      const digest = digestOf(`${key.id} ${now}`);
      return {
        group: 'secrets',
        mayInvalidate: true,
        async make(gateway) {
          const isMade = await changed(({ secrets: [first] }) => ({
            record: { secrets: [{ ...(first ?? secretOf(digest)), digest }] },
            isUrgent: true,
          }))(gateway);
          if (isMade) key.digests.push(digest);
          return isMade;
        },
        isBroken: (request, { outcome }) => old.includes(request.digest) && outcome !== 'unauthorized',
      };
    }
    case 'expire': {
      const inMs = step.value * 100;
      const boundAt = time.now + inMs + CLOCKS_APART_MS;
      return {
        group: 'expiry',
        mayInvalidate: true,
        make: changed(() => ({ record: { expiresAt: now + inMs * 1_000 } })),
        isBroken: ({ at }, { outcome }) => at > boundAt && outcome !== 'unauthorized',
      };
    }
    case 'set limit':
      return {
        group: 'limit',
        make: changed(() => ({ record: { minute: step.value } })),
        isBroken: (_, verdict) => isShared(verdict) && minuteIn(verdict) !== step.value,
      };
    case 'set plan limit':
      return {
        group: 'limit',
        make: planSet('minute', String(step.value)),
        // A ban is remembered for a second with the limits of its time.
        isBroken: (_, verdict) => isShared(verdict) && admits(verdict.outcome) && minuteIn(verdict) !== step.value,
      };
    case 'shadow':
      return {
        group: 'mode',
        make: planSet('mode', 'shadow'),
        isBroken: (_, { outcome }) => outcome === 'refused',
      };
    case 'enforce':
      return {
        group: 'mode',
        make: planSet('mode', 'enforce'),
        isBroken: (_, verdict) => isShared(verdict) && verdict.isShadowed === true,
      };
  }
}

const isShared = (verdict: Verdict): verdict is Decision => 'buckets' in verdict && verdict.mode === 'shared';

type Presented = Pick<Request, 'id' | 'digest' | 'scope' | 'address'>;

export const credentialFor = ({ id, digest, scope, address }: Presented) =>
  credentialOf(id, digest, { scope, address });
