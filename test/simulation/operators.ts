import { hash } from 'node:crypto';
import { credentialOf, SCOPES, type Secret } from '../../gateway/limiter/credential.ts';
import type { KeyChange, KeyEntry } from '../../gateway/limiter/key-record.ts';
import type { Decision, Verdict } from '../../gateway/limiter/limiter.ts';
import { parseNetwork } from '../../gateway/limiter/networks.ts';
import type { Activity } from '../../gateway/stores/audit.ts';
import { type AboutChange, planActivity } from '../../gateway/stores/plans.ts';
import type { Gateway } from './gateway.ts';
import type { Bond, Request } from './invariants.ts';
import type { OperatorStep } from './plan.ts';
import type { VirtualTime } from './virtual-time.ts';

/** A key as its owner and the operators see it. */
export interface SimulatedKey {
  readonly id: string;
  /** The newest is last. */
  readonly digests: string[];
  /** When the bans by operators expire. */
  readonly bans: number[];
}

export const INSIDE = '10.1.2.3';
export const OUTSIDE = '192.0.2.1';
const NETWORK = parseNetwork('10.0.0.0/8') ?? '';
/** The tolerance for a gateway without Redis: its clock is behind by the delay of the last reply. */
const CLOCKS_APART_MS = 1_000;

export const digestOf = (text: string) => hash('sha256', text, 'base64url');

export const credentialFor = ({ id, digest, ...use }: Pick<Request, 'id' | 'digest' | 'scope' | 'address'>) =>
  credentialOf(id, digest, use);

/** Makes a change as an operator. @returns a truthy value if it was made */
type Make = (gateway: Gateway) => Promise<unknown>;

interface Change extends Pick<Bond, 'group' | 'isBroken'> {
  readonly make: Make;
  /** Whether the change can make a valid request invalid. */
  readonly mayInvalidate: boolean;
}

const isValid: Bond['isBroken'] = (_, { outcome }) => outcome !== 'unauthorized';
const isAdmitted = ({ outcome }: Verdict): boolean => outcome === 'admitted' || outcome === 'refused';
const isRejectedAs = (reason: string) => (_: Request, verdict: Verdict) =>
  verdict.outcome === 'unauthorized' && verdict.reason === reason;
/** Checks only shared decisions, because a cached ban or a gateway without Redis may still have the old limit. */
const hasOtherLimit = (limit: number) => (_: Request, verdict: Verdict) =>
  isAdmitted(verdict) && (verdict as Decision).mode === 'shared' && (verdict as Decision).buckets[0]?.limit !== limit;

/** The change that an operator makes in a step, with a check for answers that contradict it. */
export function changeIn({ kind, value }: OperatorStep, key: SimulatedKey, time: VirtualTime): Change {
  const now = time.microseconds;
  // The reason contains the time, because the audit log omits repetitions.
  const about = { actor: 'operator', via: 'api' as const, reason: `${kind} at ${now}`, changes: [] };
  const activity: Activity = { ...about, action: 'key.change', target: key.id };
  const ofKey =
    (make: (record: KeyEntry['record']) => KeyChange): Make =>
    ({ keys }) =>
      keys.change(key.id, (record) => ({ ...make(record), activity }));
  const ofSecrets = (change: Partial<Secret>) =>
    ofKey(({ secrets }) => ({ record: { secrets: secrets.map((secret) => ({ ...secret, ...change })) } }));
  const ofPlan =
    (field: string, text: string): Make =>
    ({ plans }) =>
      plans.change(
        () => ({ [`pro.${field}`]: text }),
        planChange((changes) => planActivity(changes, about)),
      );
  const record = (changes: NonNullable<KeyChange['record']>) => ofKey(() => ({ record: changes }));
  const change = (group: string, make: Make, isBroken: Bond['isBroken'], mayInvalidate = false): Change => {
    return { group, make, isBroken, mayInvalidate };
  };
  switch (kind) {
    case 'revoke':
      return change('revoked', ({ keys }) => keys.remove(key.id, () => activity), isValid, true);
    case 'expire': {
      const end = time.now + value * 100;
      const isLate: Bond['isBroken'] = (request, verdict) =>
        request.at > end + CLOCKS_APART_MS && isValid(request, verdict);
      return change('expiry', record({ expiresAt: now + value * 100_000 }), isLate, true);
    }
    case 'disable':
      return change('disabled', record({ disabled: true }), isValid, true);
    case 'enable':
      return change('disabled', record({ disabled: undefined }), isRejectedAs('disabled'));
    case 'ban': {
      const until = now + value * 1e6;
      key.bans.push(until);
      const make = ofKey(() => ({ ban: { until, text: 'simulated' } }));
      return change('ban', make, (_, verdict) => isAdmitted(verdict) && (verdict as Decision).now < until);
    }
    case 'lift': {
      const lifted = [...key.bans];
      const make = ofKey(() => ({ ban: 'lift' }));
      return change('ban', make, (_, verdict) => verdict.outcome === 'banned' && lifted.includes(verdict.bannedUntil));
    }
    case 'bind to a network': {
      const isOutside: Bond['isBroken'] = (request, verdict) =>
        request.address === OUTSIDE && isValid(request, verdict);
      return change('network', ofSecrets({ networks: [NETWORK] }), isOutside, true);
    }
    case 'unbind from networks':
      return change('network', ofSecrets({ networks: [] }), isRejectedAs('elsewhere'));
    case 'read only': {
      const writes: Bond['isBroken'] = ({ scope }, verdict) => scope === 'write' && isAdmitted(verdict);
      return change('scope', ofSecrets({ scope: ['read'] }), writes);
    }
    case 'read and write':
      return change('scope', ofSecrets({ scope: SCOPES }), (_, { outcome }) => outcome === 'forbidden');
    case 'rotate': {
      const [old, digest] = [[...key.digests], digestOf(`${key.id} ${now}`)];
      const make: Make = async ({ keys }) => {
        const made = await keys.change(key.id, ({ secrets: [first] }) => {
          return { record: { secrets: [{ ...(first as Secret), digest }] }, activity, isUrgent: true };
        });
        if (made !== undefined) key.digests.push(digest);
        return made;
      };
      const isOld: Bond['isBroken'] = (request, verdict) => old.includes(request.digest) && isValid(request, verdict);
      return change('secrets', make, isOld, true);
    }
    case 'set limit':
      return change('limit', record({ minute: value }), hasOtherLimit(value));
    case 'set plan limit':
      return change('limit', ofPlan('minute', String(value)), hasOtherLimit(value));
    case 'shadow':
      return change('mode', ofPlan('mode', 'shadow'), (_, { outcome }) => outcome === 'refused');
    case 'enforce': {
      const isShadowed: Bond['isBroken'] = (_, verdict) => 'isShadowed' in verdict && verdict.isShadowed === true;
      return change('mode', ofPlan('mode', 'enforce'), isShadowed);
    }
  }
}

export const planChange = (entriesFor: AboutChange['entriesFor'] = () => []): AboutChange => {
  return { author: 'operator', reason: '', action: 'set', entriesFor };
};
