import { createHash } from 'node:crypto';
import type { Redis } from 'ioredis';
import { StoreUnavailable } from '../../gateway/limiter/limiter.ts';
import { secretWith } from '../support/secrets.ts';
import type { Break } from './breaks.ts';
import { runClient } from './clients.ts';
import { type Gateway, startGateway, TIMEOUT_MS } from './gateway.ts';
import type { Answer, Request } from './invariants.ts';
import { Judge } from './judge.ts';
import { Link } from './network.ts';
import { changeIn, credentialFor, digestOf, INSIDE, OUTSIDE, planChange, type SimulatedKey } from './operators.ts';
import { describe, type FaultStep, HAMMERED_KEY, LONE_KEY, type OperatorStep, type Plan, type Step } from './plan.ts';
import { Random } from './random.ts';
import { Server } from './server.ts';
import { VirtualTime } from './virtual-time.ts';

export type Result = Awaited<ReturnType<typeof run>>;

export interface Options {
  readonly redis: Redis;
  readonly broken?: Break | undefined;
}

const SWEEP_MS = 100;
const RECOVERY_MS = 3_000;
const PLAN_MINUTE = 30;
const HISTORY_LINES = 40;

const WELL = { delayMs: 2, loss: 0, isCut: false };
const ON_LINKS = {
  slow: { delayMs: TIMEOUT_MS / 2 - 25 },
  late: { delayMs: 2 * TIMEOUT_MS },
  lossy: { loss: 0.1 },
  cut: { isCut: true },
};
const ON_SERVER = { restart: 'down', full: 'full', demoted: 'demoted' } as const;

/**
 * Runs a plan on an empty Redis to the end of the plan, or to the first violation. Then virtual time stops, so calls
 * that still wait for a timer or for Redis never return.
 */
export async function run(plan: Plan, { redis, broken = {} }: Options) {
  await redis.flushdb();
  using time = new VirtualTime();
  const simulation = new Simulation(plan, time, redis, broken);
  await simulation.run();
  return simulation.result();
}

class Simulation {
  readonly #plan: Plan;
  readonly #time: VirtualTime;
  readonly #broken: Break;
  readonly #judge: Judge;
  readonly #server: Server;
  readonly #links: readonly Link[];
  readonly #keys: readonly SimulatedKey[];
  readonly #gateways: (Gateway | undefined)[] = [];
  readonly #random: Random;
  readonly #hash = createHash('sha256');
  readonly #history: string[] = [];
  #recovered = 0;
  /** Local admissions of killed gateways, whose charges have an unknown outcome. */
  #unknown = 0;
  /** The numbers of decisions, of decisions without Redis, and of faults. */
  readonly #counts = { decisions: 0, local: 0, faults: 0 };

  constructor(plan: Plan, time: VirtualTime, redis: Redis, broken: Break) {
    this.#plan = plan;
    this.#time = time;
    this.#broken = broken;
    this.#random = new Random(`run ${plan.seed}`);
    this.#keys = [...plan.keys.keys()].map((at) => ({
      id: `simulated0${at}0`,
      digests: [digestOf(`k${at}`)],
      bans: [],
    }));
    const ids = this.#keys.map(({ id }) => id);
    this.#judge = new Judge(time, ids, plan.gateways);
    this.#server = new Server(redis, time, this.#judge);
    if (broken.server !== undefined) broken.server(this.#server);
    this.#links = Array.from({ length: plan.gateways }, (_, at) => {
      return new Link(`g${at}`, this.#server, this.#random.fork(`link ${at}`));
    });
    const hammer = plan.steps.find((step) => step.does === 'client' && step.key === HAMMERED_KEY);
    if (hammer?.does === 'client') this.#judge.hammerTimes = hammer.times;
  }

  async run(): Promise<void> {
    const isOver = () => this.#judge.violation !== undefined;
    for (const at of this.#links.keys()) void this.#start(at);
    await this.#time.runUntil(500, isOver);
    void this.#createKeys();
    await this.#time.runUntil(1_000, isOver);
    const sweeping = setInterval(() => this.#sweep(), SWEEP_MS);
    for (const step of this.#plan.steps) {
      await this.#time.runUntil(1_000 + step.at, isOver);
      if (isOver()) break;
      this.#take(step);
    }
    const last = Math.max(...this.#plan.steps.map((step) => step.at + ('forMs' in step ? step.forMs : 0)));
    await this.#time.runUntil(1_000 + last, isOver);
    this.#note('all faults end');
    this.#change(this.#links, WELL);
    this.#becomes('well');
    await this.#time.runUntil(this.#time.now + RECOVERY_MS, isOver);
    void this.#checkRecovery();
    await this.#time.runUntil(this.#time.now + TIMEOUT_MS, isOver);
    if (this.#recovered < this.#links.length) this.#judge.fail('recovers', 'A gateway has not reconnected to Redis.');
    this.#judge.end();
    clearInterval(sweeping);
  }

  result() {
    return {
      violation: this.#judge.violation,
      /** The digest of the whole history. The same plan always has the same digest. */
      digest: this.#hash.digest('hex').slice(0, 16),
      /** The last lines of the history. */
      history: this.#history as readonly string[],
      ...this.#counts,
      virtualMs: this.#time.now,
    };
  }

  #note(line: string): void {
    const text = `${String(this.#time.now).padStart(7)} ms  ${line}`;
    this.#hash.update(text);
    this.#history.push(text);
    if (this.#history.length > 2 * HISTORY_LINES) this.#history.splice(0, HISTORY_LINES);
  }

  async #start(at: number): Promise<void> {
    this.#gateways[at] = await startGateway(this.#links[at] as Link, this.#broken);
  }

  async #createKeys(): Promise<void> {
    const gateway = this.#gateways[0] as Gateway;
    await gateway.plans.change(() => ({ 'pro.minute': String(PLAN_MINUTE) }), planChange());
    for (const [at, { id, digests }] of this.#keys.entries()) {
      const { plan, minute, day } = this.#plan.keys[at] as Plan['keys'][number];
      const secrets = digests.map((digest) => secretWith(digest));
      const createdAt = this.#time.microseconds;
      await gateway.keys.create(id, { plan, minute, day, name: `k${at}`, secrets, createdAt });
    }
  }

  #take(step: Step): void {
    this.#note(describe(step));
    switch (step.does) {
      case 'client': {
        const { key, gateway } = step;
        const time = this.#time;
        void runClient(step, {
          minute: this.#plan.keys[key]?.minute ?? PLAN_MINUTE,
          get now() {
            return time.now;
          },
          ask: (random, waitedSince) => this.#ask(random, key, gateway, waitedSince),
        });
        break;
      }
      case 'fault':
        this.#counts.faults += 1;
        this.#fault(step);
        break;
      case 'restart of a gateway':
        this.#counts.faults += 1;
        void this.#restart(step.gateway, step.forMs);
        break;
      case 'operator':
        void this.#operate(step);
    }
    this.#look();
  }

  async #ask(random: Random, key: number, where: number | undefined, waitedSince: number | undefined): Promise<Answer> {
    const place = where ?? random.between(0, this.#plan.gateways - 1);
    const { id, digests } = this.#keys[key] as SimulatedKey;
    const digest = (random.chance(0.15) ? digests.at(-2) : undefined) ?? digests.at(-1) ?? '';
    const scope = random.chance(0.3) ? 'write' : 'read';
    const address = random.chance(0.2) ? OUTSIDE : INSIDE;
    const gateway = this.#gateways[place];
    if (gateway === undefined) return undefined;
    const at = this.#time.now;
    const isOffline = !gateway.isConnected();
    const request: Request = { gateway: place, key, id, digest, scope, address, at, waitedSince, isOffline };
    this.#judge.asked(request);
    this.#counts.decisions += 1;
    const answer = await gateway.limiter.decide(credentialFor(request)).catch((fault: unknown) => {
      if (fault instanceof StoreUnavailable) return undefined;
      throw fault;
    });
    if (answer !== undefined && 'mode' in answer && answer.mode === 'local') this.#counts.local += 1;
    if (this.#gateways[place] !== gateway) this.#judge.dropped(request);
    else {
      this.#note(`g${place} answers k${key}, asked at ${at}: ${inWords(answer)}`);
      this.#look();
      this.#judge.answered(request, answer);
    }
    return answer;
  }

  async #operate(step: OperatorStep): Promise<void> {
    const key = this.#keys[step.key] as SimulatedKey;
    const gateway = this.#gateways[step.gateway];
    if (gateway === undefined) return;
    const { make, mayInvalidate = false, ...bond } = changeIn(step, key, this.#time);
    const begun = this.#judge.begin(
      { ...bond, id: key.id, gateway: step.gateway, what: describe(step) },
      mayInvalidate,
    );
    const isMade = await make(gateway).then(Boolean, () => false);
    this.#note(`g${step.gateway} ${isMade ? 'acknowledges' : 'does not acknowledge'} “${describe(step)}”`);
    // If the gateway was restarted during the change, its acknowledgement does not count.
    if (isMade && this.#gateways[step.gateway] === gateway) begun.acknowledge();
    else begun.fail();
  }

  #fault({ kind, gateway, forMs }: FaultStep): void {
    const end = (task: () => void) => this.#time.at(this.#time.now + forMs, task);
    if (kind === 'failover') {
      void this.#server.delayReplica();
      end(async () => {
        this.#becomes('down');
        await this.#server.failOver();
        end(() => this.#becomes('well'));
      });
    } else if (kind in ON_LINKS) {
      const change = ON_LINKS[kind as keyof typeof ON_LINKS];
      const undone = Object.fromEntries(Object.entries(WELL).filter(([name]) => name in change));
      const links = this.#links.filter((_, at) => gateway === undefined || gateway === at);
      this.#change(links, change);
      end(() => this.#change(links, undone));
    } else {
      this.#becomes(ON_SERVER[kind as keyof typeof ON_SERVER]);
      end(() => this.#becomes('well'));
    }
  }

  #change(links: readonly Link[], change: Partial<typeof WELL>): void {
    for (const link of links) Object.assign(link, change);
    this.#look();
  }

  #becomes(state: Server['state']): void {
    this.#server.become(state);
    this.#look();
  }

  async #restart(at: number, forMs: number): Promise<void> {
    const gateway = this.#gateways[at];
    if (gateway === undefined) return;
    this.#gateways[at] = undefined;
    this.#judge.restarted(at);
    this.#look();
    await gateway.close();
    this.#unknown += gateway.unknown();
    this.#time.at(this.#time.now + forMs, () => void this.#start(at));
  }

  async #checkRecovery(): Promise<void> {
    const { id, digests } = this.#keys[LONE_KEY] as SimulatedKey;
    const credential = credentialFor({ id, digest: digests[0] ?? '', scope: 'read', address: INSIDE });
    for (const gateway of this.#gateways) {
      const answer = await gateway?.limiter.peek(credential).catch(() => undefined);
      const isShared = answer !== undefined && 'mode' in answer && answer.mode === 'shared';
      if (isShared && gateway?.nodesAway() === 0) this.#recovered += 1;
    }
  }

  #look(): void {
    for (const at of this.#links.keys()) this.#judge.sees(at, this.#gateways[at]?.isWell() ?? false);
  }

  #sweep(): void {
    this.#look();
    this.#judge.sweep(() => this.#gateways.reduce((sum, gateway) => sum + (gateway?.unknown() ?? 0), this.#unknown));
  }
}

function inWords(answer: Answer): string {
  if (answer === undefined) return '503';
  if (!('buckets' in answer)) return `${answer.outcome}, ${answer.reason}`;
  const left = answer.buckets.map(({ tokens, limit }) => `${tokens}/${limit}`).join(' and ');
  return `${answer.outcome}, ${answer.mode}, ${left} left`;
}
