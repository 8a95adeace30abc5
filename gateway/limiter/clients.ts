import { boundedMap } from '../../shared/bounded-map.ts';
import { monotonicClock, SECOND } from './bucket.ts';
import {
  Client,
  type Debt,
  debited,
  giveBack,
  type KeyFacts,
  type KnownKey,
  type KnownPage,
  owe,
  owedBy,
  recordOf,
  refillDue,
  type StoreReply,
  settled,
  spare,
  stateAfter,
  tokensOf,
} from './client.ts';
import { type Credential, isFromAllowedNetwork, MAX_SECRETS } from './credential.ts';
import { decide } from './decide.ts';
import { type KeyRecord, type KeyState, UNUSED } from './key-record.ts';
import {
  type BucketState,
  type Decision,
  type LocalCharge,
  type LocalDecisions,
  later,
  type Unauthorized,
  type Verdict,
} from './limiter.ts';
import { MAX_LIMIT, type Plan, type PlanTable } from './plans.ts';

/** How long local decisions may use the store's verdict. */
const VERDICT_HOLDS = 15 * 60 * SECOND;
/** How long this process remembers a ban: not long, because an operator may have lifted it at another gateway. */
const BAN_HOLDS = SECOND;
export const MAX_CLIENTS = 50_000;
/** How many keys another process takes over at once: few enough not to block its event loop. */
const PAGE = 250;

/**
 * The keys in use, one record each: the store's last decision, and the local decisions since then. During a store
 * outage, this class decides by the same rules, from the last known levels and bans. After an operator changes a key,
 * it makes no decision on that key until the store has made another one.
 */
export class Clients implements LocalDecisions {
  readonly #clients = boundedMap<string, Client>(MAX_CLIENTS, (client) => {
    client.isEvicted = true;
  });
  /** Clients with a debt. They are never evicted. */
  readonly #debtors = new Map<string, Client>();
  readonly #plans: () => PlanTable | undefined;
  readonly #monotonic: () => number;
  readonly #onBan: (client: Client) => void;
  #doubtedAt = Number.NEGATIVE_INFINITY;
  /**
   * When a key without a record last changed. All such keys share this time, because a record for each restored key
   * would evict the records in use.
   */
  #othersChangedAt = Number.NEGATIVE_INFINITY;

  /**
   * @param plans returns the plans in force; undefined until they have been read
   * @param monotonic a clock in microseconds that never goes back
   * @param onBan called when the store first reports a ban that a decision set
   */
  constructor(
    plans: () => PlanTable | undefined,
    monotonic = monotonicClock,
    onBan: (client: Client) => void = () => {},
  ) {
    this.#plans = plans;
    this.#monotonic = monotonic;
    this.#onBan = onBan;
  }

  /** The client, if the store accepted the credential's secret last time. */
  verified({ id, digest }: Credential): Client | undefined {
    const client = this.#find(id);
    return client?.secrets.has(digest) ? client : undefined;
  }

  /** The last known limit status of a verified key, for a response without a verdict. The key may have changed since. */
  lastStatus(credential: Credential): Decision | undefined {
    const reply = this.verified(credential)?.lastReply;
    return reply && later(reply.decision, this.#monotonic() - reply.at);
  }

  /**
   * The verdict on a client with a remembered ban, which saves a call to the store. Bans are remembered by secret.
   * Neither a wrong secret nor the right secret from the wrong network may reveal that the key is banned.
   */
  bannedVerdict(client: Client, { digest, use }: Credential): Decision | undefined {
    if (client.lastReply?.decision.outcome !== 'banned') return undefined;
    const lastReply = client.secrets.get(digest);
    if (lastReply === undefined) return undefined;
    const age = this.#monotonic() - lastReply.at;
    const { bounds, plan, isBannedByOperator } = lastReply.decision;
    // A plan in shadow mode ignores the bans that decisions set.
    if (!isBannedByOperator && this.#plans()?.[plan].mode === 'shadow') return undefined;
    if (age >= BAN_HOLDS || !this.#isBanned(client, lastReply)) return undefined;
    if (bounds !== undefined && !isFromAllowedNetwork(bounds, use)) return undefined;
    return later(lastReply.decision, age);
  }

  /**
   * Remembers a verdict from the store. Forgets a secret that the store found invalid.
   * @param inHand the record of the key, if the caller has it
   */
  note({ id, digest }: Credential, verdict: Verdict, askedAt = this.#monotonic(), inHand?: Client): void {
    const known = inHand === undefined || inHand.isEvicted ? this.#find(id) : inHand;
    if (verdict.outcome === 'undecided' || verdict.mode === 'local') return;
    if (verdict.outcome === 'unauthorized') {
      this.#reject(known, digest, verdict);
      return;
    }
    const client = this.#recordFor(id, askedAt, known);
    if (client === undefined) return;
    const lastReply = { decision: verdict, at: this.#monotonic() };
    const isNewBan = verdict.outcome === 'banned' && verdict.bannedUntil !== client.lastReply?.decision.bannedUntil;
    this.#noteReply(client, lastReply);
    // Keeps secrets in the order of their last use, so that a revoked one is evicted before those in use.
    if (client.secrets.size > 1) client.secrets.delete(digest);
    if (client.secrets.size === MAX_SECRETS) client.secrets.delete(client.secrets.keys().next().value as string);
    client.secrets.set(digest, lastReply);
    if (isNewBan && !verdict.isBannedByOperator) this.#onBan(client);
  }

  /**
   * Notes a verdict of the store that arrived after its request was decided here. A token that only one of the two
   * decisions took is charged or returned.
   * @param decidedHere undefined if there was no decision
   */
  noteLate(credential: Credential, verdict: Verdict, askedAt: number, decidedHere: Verdict | undefined): void {
    this.note(credential, verdict, askedAt);
    const client = this.#find(credential.id);
    const owed = tokensOf(decidedHere) - tokensOf(verdict);
    if (owed === 0 || client?.lastReply === undefined || !('buckets' in verdict)) return;
    if (owed > 0) owe(client.debt, decidedHere as Decision, (decidedHere as Decision).now);
    else giveBack(client.debt, verdict.now);
    this.#debtors.set(client.id, client);
    this.#noteReply(client, client.lastReply);
  }

  #reject(client: Client | undefined, digest: string, { reason, isOfKey }: Unauthorized): void {
    // The secret is still valid in its own network.
    if (reason !== 'elsewhere') client?.secrets.delete(digest);
    if (!isOfKey || client === undefined) return;
    // The key may have been revoked by hand, which no gateway announces.
    client.secrets.clear();
    client.changedAt = this.#monotonic();
  }

  decide(credential: Credential, charge: LocalCharge): Verdict | undefined {
    const facts = this.#localFacts(credential);
    if (facts === undefined || 'outcome' in facts) return facts;
    const { client, record, state, plan, now } = facts;
    const decided = decide(record, state, credential, plan, now, charge !== 'peek');
    const { verdict } = decided;
    if (charge === 'peek') return local(verdict);
    // Usage is counted when the debt is charged, so its marks would only use memory here.
    if (decided.state !== undefined) client.state = { ...decided.state, usage: UNUSED, used: {} };
    if (charge === 'later' && (verdict.outcome === 'admitted' || verdict.outcome === 'refused')) {
      owe(client.debt, verdict, facts.repliedAt);
      this.#debtors.set(client.id, client);
    }
    return local(verdict);
  }

  /**
   * Notes that an operator has changed a key.
   * @param isReset whether both buckets were filled, which cancels the debt for earlier requests
   */
  noteChange(id: string, isReset = false): void {
    const client = this.#peek(id);
    if (client === undefined) this.#othersChangedAt = this.#monotonic();
    else client.changedAt = this.#monotonic();
    const debtor = this.#debtors.get(id);
    if (isReset && debtor !== undefined) spare(debtor.debt);
  }

  /** Notes that any key may have been changed. */
  doubtAll(): void {
    this.#doubtedAt = this.#monotonic();
  }

  /**
   * Whether an answer to a query sent at `askedAt` may be older than a change to the key.
   * @param inHand the record of the key, if the caller has it
   */
  hasChangedSince(id: string, askedAt: number, inHand?: Client): boolean {
    return this.#isOutdated(inHand === undefined || inHand.isEvicted ? this.#peek(id) : inHand, askedAt);
  }

  /** Remembers the facts that the owner of a verified key may see, so that they are available in a store outage. */
  noteFacts(id: string, facts: KeyFacts | undefined, askedAt: number): void {
    const client = this.#find(id);
    if (client !== undefined) client.facts = facts && { facts, askedAt };
  }

  facts(id: string): KeyFacts | undefined {
    const client = this.#find(id);
    const remembered = client?.facts;
    if (remembered === undefined || this.hasChangedSince(id, remembered.askedAt)) return undefined;
    return remembered.facts;
  }

  debtors(): Client[] {
    const debtors = [...this.#debtors.values()];
    for (const client of debtors) this.#refillDue(client);
    return debtors;
  }

  /**
   * Subtracts a charge from a client's debt.
   * @param decision the levels after the charge; undefined if they are unknown
   */
  settle(client: Client, charged: Debt, decision: Decision | undefined): void {
    if (settled(client.debt, charged)) this.#debtors.delete(client.id);
    if (decision === undefined) return;
    const { lastReply } = client;
    const reply = { decision, at: this.#monotonic() };
    this.#noteReply(client, lastReply !== undefined && isNewer(lastReply, reply) ? lastReply : reply);
  }

  /** When the store's last verdict on a key arrived, by the monotonic clock in microseconds; 0 for never. */
  repliedAt(id: string): number {
    return this.#find(id)?.lastReply?.at ?? 0;
  }

  all(): Iterable<Client> {
    return this.#clients.values();
  }

  /** What this process knows about a key, for another process. */
  known(id: string): KnownKey | undefined {
    const client = this.#find(id);
    return client && this.#knownOf(client);
  }

  /**
   * What this process knows about all keys, page by page, the most recently used key first. A key that is used in the
   * meantime may appear twice or not at all.
   */
  *pages(): Generator<KnownPage> {
    let page: [string, KnownKey][] = [];
    for (const client of this.#clients.values()) {
      const known = this.#knownOf(client);
      if (known !== undefined && page.push([client.id, known]) === PAGE) {
        yield page;
        page = [];
      }
    }
    yield page;
  }

  #knownOf(client: Client): KnownKey | undefined {
    const { lastReply, changedAt } = client;
    const secrets = [...client.secrets].filter(([, proof]) => this.#isCurrent(client, proof));
    return lastReply && { lastReply, changedAt, secrets };
  }

  /**
   * Takes over what another process knows about a key, unless this process knows something newer.
   * @param askedAt when that process was queried
   * @returns false if the key may have changed since
   */
  takeOver(id: string, { lastReply, changedAt, secrets }: KnownKey, askedAt: number): boolean {
    const client = this.#recordFor(id, askedAt);
    if (client === undefined) return false;
    client.changedAt = Math.max(client.changedAt, changedAt);
    if (isNewer(lastReply, client.lastReply)) this.#noteReply(client, lastReply);
    for (const [digest, proof] of secrets)
      if (isNewer(proof, client.secrets.get(digest))) client.secrets.set(digest, proof);
    return true;
  }

  /** Whether a ban on a key is still in force, according to the last decision. */
  isBanned(client: Client): boolean {
    return client.lastReply !== undefined && this.#isBanned(client, client.lastReply);
  }

  /** Whether this process knows of a ban on this key that is in force. */
  knowsBanOf(id: string): boolean {
    const client = this.#peek(id);
    return client !== undefined && this.isBanned(client);
  }

  #find(id: string): Client | undefined {
    return this.#clients.get(id) ?? this.#debtors.get(id);
  }

  /** The current time by the store's clock. */
  #storeTime({ decision, at }: StoreReply): number {
    return decision.now + this.#monotonic() - at;
  }

  #isBanned(client: Client, lastReply: StoreReply): boolean {
    const { decision, at } = lastReply;
    if (decision.outcome !== 'banned' || this.#isOutdated(client, at)) return false;
    return decision.bannedUntil > this.#storeTime(lastReply);
  }

  /** The record of a key, or a new one; undefined if the key was changed after `askedAt`. */
  #recordFor(id: string, askedAt: number, known = this.#find(id)): Client | undefined {
    if (this.#isOutdated(known, askedAt)) return undefined;
    if (known !== undefined) return known;
    const client = new Client(id);
    this.#clients.set(id, client);
    return client;
  }

  #refillDue({ debt, state, lastReply }: Client): void {
    if (debt.due === 0 || state === undefined || lastReply === undefined) return;
    const [minute] = lastReply.decision.buckets;
    refillDue(debt, state, (minute as BucketState).limit, this.#storeTime(lastReply));
  }

  /** Subtracts the debt from the levels, because the store has not charged it yet. */
  #noteReply(client: Client, lastReply: StoreReply): void {
    const [minute] = lastReply.decision.buckets as [BucketState];
    const { debt } = client;
    let state: KeyState | undefined;
    if (debt.admitted > 0) {
      // decide.lua charges the debt in the same way.
      if (minute.tokens >= minute.limit - 1) this.#refillDue(client);
      else debt.due = owedBy(debt);
      if (owedBy(debt) > 0) state = debited(stateAfter(lastReply.decision), debt);
    }
    client.lastReply = lastReply;
    client.state = state;
  }

  /** Reads the record without marking it as used. */
  #peek = (id: string): Client | undefined => this.#clients.peek(id) ?? this.#debtors.get(id);

  /** Whether an answer to a query sent at `askedAt` may be older than a change. */
  #isOutdated = (client: Client | undefined, askedAt: number): boolean =>
    this.#doubtedAt >= askedAt || (client?.changedAt ?? this.#othersChangedAt) >= askedAt;

  #isCurrent(client: Client, { at }: StoreReply): boolean {
    return this.#monotonic() - at <= VERDICT_HOLDS && !this.#isOutdated(client, at);
  }

  /** The inputs of a local decision; undefined if the credential is not, or no longer, verified. */
  #localFacts({ id, digest }: Credential): LocalFacts | Unauthorized | undefined {
    const client = this.#find(id);
    const proof = client?.secrets.get(digest);
    if (client?.lastReply === undefined || proof === undefined || !this.#isCurrent(client, proof)) return undefined;
    const { decision } = client.lastReply;
    const now = this.#storeTime(client.lastReply);
    const { endsAt, bounds } = proof.decision;
    if (endsAt !== 0 && endsAt <= now) return EXPIRED;
    // An outage must not ban anyone, so a refused request gets a place in line but is not a strike.
    const plan = { ...this.#plans()?.[decision.plan], ...NO_BANS };
    const record = recordOf(decision, plan, digest, bounds);
    return { client, repliedAt: decision.now, record, state: client.state ?? stateAfter(decision), plan, now };
  }
}

interface LocalFacts {
  readonly client: Client;
  readonly repliedAt: number;
  readonly record: KeyRecord;
  readonly state: KeyState;
  readonly plan: Plan;
  readonly now: number;
}

/** A reply can arrive at most this long after the replies to later calls. */
const LATE = 5 * SECOND;

/**
 * Whether the store made this decision after the other one. Replies can arrive out of order: the reply to a charge may
 * follow replies to later requests, whose levels already include the charge. The store's clock then shows the real
 * order, unless it was set back.
 */
function isNewer({ decision, at }: StoreReply, than: StoreReply | undefined): boolean {
  if (than === undefined) return true;
  const ahead = decision.now - than.decision.now;
  return ahead !== 0 && Math.abs(ahead) < LATE ? ahead > 0 : at > than.at;
}

const EXPIRED: Unauthorized = { outcome: 'unauthorized', reason: 'expired', mode: 'local' };
/** No key ever reaches this many strikes. */
const NO_BANS: Plan = { ban_after: MAX_LIMIT, ban_grace_seconds: MAX_LIMIT, ban_seconds: 1 };

const local = (verdict: Verdict): Verdict =>
  verdict.outcome === 'undecided' ? verdict : { ...verdict, mode: 'local' };
