import { pino } from 'pino';
import { monotonicClock } from '../../gateway/limiter/bucket.ts';
import { Clients } from '../../gateway/limiter/clients.ts';
import type { Limiter, LocalDecisions } from '../../gateway/limiter/limiter.ts';
import type { PlanTable } from '../../gateway/limiter/plans.ts';
import {
  type Announce,
  AUDIT_LOG,
  actOn,
  announceTo,
  banLog,
  confirmed,
  follow,
} from '../../gateway/primary/changes.ts';
import { Keys } from '../../gateway/stores/keys.ts';
import { PlanCache } from '../../gateway/stores/plan-cache.ts';
import { Plans } from '../../gateway/stores/plans.ts';
import { redisBackend } from '../../gateway/stores/redis/backend.ts';
import type { Family } from '../../shared/process/counts.ts';
import { type Link, NetworkConnection } from './network.ts';

export const TIMEOUT_MS = 250;
const OPERATORS_TIMEOUT_MS = 5_000;
const LOAD_AGAIN_MS = 250;

const logger = pino({ level: 'silent' });

/** The parts of a gateway that a deliberate break can change. */
export interface Wrappers {
  limiter?(limiter: Limiter): Limiter;
  clients?(clients: Clients): void;
  locals?(clients: Clients): LocalDecisions;
  announce?(announce: Announce): Announce;
  plans?(table: PlanTable): PlanTable;
  readonly timeoutMs?: number;
  /** Whether the gateway ignores changes by other gateways. */
  readonly isDeaf?: boolean;
}

export type Gateway = Awaited<ReturnType<typeof startGateway>>;

/** Starts a gateway from the product's code, composed as open-backend.ts and worker.ts compose it for one process. */
export async function startGateway(link: Link, wrappers: Wrappers = {}) {
  const connection = new NetworkConnection(link, wrappers.timeoutMs ?? TIMEOUT_MS);
  const plans: { table: PlanTable | undefined } = { table: undefined };
  const inForce = {
    get table() {
      return plans.table && (wrappers.plans?.(plans.table) ?? plans.table);
    },
  };
  const clients = new Clients(
    () => inForce.table,
    undefined,
    ({ id }) => bans.add(id),
  );
  wrappers.clients?.(clients);
  const backend = redisBackend(connection, inForce, logger, {
    clients,
    locals: wrappers.locals?.(clients),
    connectOperators: async () => new NetworkConnection(link, OPERATORS_TIMEOUT_MS),
  });
  const planCache = new PlanCache(new Plans(backend.storage), logger, plans);
  let isOpen = true;
  const load = async () => {
    if (isOpen && (await backend.loadScript()) !== undefined) setTimeout(load, LOAD_AGAIN_MS);
  };
  void planCache.start().then(load);
  const announce: Announce = async (changed) => actOn(changed, clients, planCache);
  const operatorsStorage = await backend.operatorsStorage();
  const bans = banLog(backend.storage, clients);
  const stopped = new AbortController();
  if (wrappers.isDeaf !== true)
    for (const log of [AUDIT_LOG, bans.followed]) follow(log, backend.storage, announce).run(stopped.signal);
  bans.run(stopped.signal);
  const announceHere = announceTo(operatorsStorage, wrappers.announce?.(announce) ?? announce);
  const storage = confirmed(operatorsStorage, announceHere, () => planCache.begin());
  const limiter = remembering(clients, backend.limiter);
  return {
    limiter: wrappers.limiter?.(limiter) ?? limiter,
    /** With this, operators change keys through this gateway. */
    keys: new Keys(storage),
    plans: new Plans(storage),
    nodesAway: backend.nodesAway,
    /** Local admissions whose charge has an unknown outcome. */
    unknown: () => unknownIn(backend.counted()),
    isConnected: () => connection.status === 'ready',
    /** Whether Redis would now reply to the gateway's commands in time. */
    isWell: () => connection.isWell(TIMEOUT_MS) && planCache.version !== undefined,
    async close(): Promise<void> {
      isOpen = false;
      stopped.abort();
      await Promise.all([backend.close(), planCache.stop()]);
    },
  };
}

const unknownIn = (families: readonly Family[]): number => {
  const local = families.find(({ name }) => name === 'gateway_local_admissions_total');
  return local?.values.find(({ labels }) => labels.fate === 'unknown')?.value ?? 0;
};

/** Remembers each verdict, as authorize.ts does. */
const remembering = (clients: Clients, limiter: Limiter): Limiter => ({
  async decide(credential) {
    const client = clients.verified(credential);
    const banned = client && clients.bannedVerdict(client, credential);
    if (banned !== undefined) return banned;
    const askedAt = monotonicClock();
    const verdict = await limiter.decide(credential);
    clients.note(credential, verdict, askedAt);
    return verdict;
  },
  peek: (credential) => limiter.peek(credential),
});
