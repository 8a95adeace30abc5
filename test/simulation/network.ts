import { EventEmitter } from 'node:events';
import { type Command, Redis, Command as RedisCommand, ReplyError } from 'ioredis';
import { loadOnConnect } from '../../gateway/stores/redis/calls.ts';
import { failFast, retryDelayMs } from '../../gateway/stores/redis/connection.ts';
import type { Random } from './random.ts';
import type { VirtualTime } from './virtual-time.ts';

/** A call of decide.lua that Redis has run. */
export interface DecideCall {
  readonly gateway: string;
  /** Redis' time in microseconds. */
  readonly now: number;
  readonly asked: readonly { readonly id: string; readonly digest: string; readonly count: number }[];
  readonly verdicts: readonly string[];
}

export interface Observer {
  /** Redis has run a call; its reply may still be lost. */
  decided(call: DecideCall): void;
  /** The reply of a call has arrived. */
  heard(call: DecideCall): void;
  /** @returns what is known of the data, for `restored` */
  copied(): unknown;
  restored(known: unknown): void;
}

const READS = new Set(['hgetall', 'hget', 'time', 'info', 'exists', 'zscore', 'zrandmember', 'xrevrange', 'script']);
const DECIDE = /^#!lua\n-- Decides a batch/;

interface Copy {
  readonly values: readonly (readonly [name: Buffer, value: Buffer])[];
  readonly known: unknown;
}

/** The one Redis: a real one, with a virtual clock, and with faults of its own. */
export class Server {
  /** Down: no connection. Full: no command that needs memory. Demoted: no write. */
  state: 'well' | 'down' | 'full' | 'demoted' = 'well';
  readonly changes = new EventEmitter().setMaxListeners(0);
  readonly time: VirtualTime;
  readonly #real: Redis;
  readonly #observer: Observer;
  /** Replies that stay the same until the next change by an operator: gateways read the plan table all the time. */
  readonly #plans = new Map<string, Promise<unknown>>();
  #knowsScript = false;
  #replica: Copy | undefined;

  constructor(real: Redis, time: VirtualTime, observer: Observer) {
    this.#real = real;
    this.time = time;
    this.#observer = observer;
  }

  become(state: Server['state']): void {
    this.state = state;
    if (state === 'down') this.#knowsScript = false;
    this.changes.emit('change');
  }

  /** From now on the replica gets only operators' changes, which wait for it: those bring it up to date. */
  async delayReplica(): Promise<void> {
    const names = await this.time.real(() => this.#real.keysBuffer('gateway:*'));
    const values = await this.time.real(() => Promise.all(names.map((name) => this.#real.dumpBuffer(name))));
    this.#replica = {
      values: names.flatMap((name, at) => (values[at] ? [[name, values[at]] as const] : [])),
      known: this.#observer.copied(),
    };
  }

  /** The replica takes over: what it has not got is lost. */
  async failOver(): Promise<void> {
    const replica = this.#replica;
    if (replica === undefined) return;
    this.#replica = undefined;
    this.#plans.clear();
    await this.time.real(async () => {
      await this.#real.flushdb();
      await Promise.all(replica.values.map(([name, value]) => this.#real.restore(name, 0, value)));
    });
    this.#observer.restored(replica.known);
  }

  /** Runs a command as it arrives. @returns its reply, and the decisions in it */
  async run(gateway: string, command: Command): Promise<{ reply: unknown; call?: DecideCall }> {
    const { name } = command;
    const args = command.args as string[];
    if (name === 'time') return { reply: microsecondsToTime(this.time.microseconds) };
    const isDecide = name === 'evalsha' || DECIDE.test(String(args[0]));
    if (!READS.has(name)) this.#refuse(String(args[0]));
    if (isDecide) return await this.#decide(gateway, name, args);
    if (name === 'hgetall' && args[0]?.includes('plans')) return { reply: await this.#readPlans(args[0]) };
    const reply = await this.time.real(() => this.send(name, args));
    if (!READS.has(name)) {
      this.#plans.clear();
      if (this.#replica !== undefined) await this.delayReplica();
    }
    return { reply };
  }

  send(name: string, args: readonly string[]): Promise<unknown> {
    return this.#real.sendCommand(new RedisCommand(name, [...args], { replyEncoding: 'utf8' })) as Promise<unknown>;
  }

  #readPlans(name: string): Promise<unknown> {
    const reply = this.#plans.get(name) ?? this.time.real(() => this.send('hgetall', [name]));
    this.#plans.set(name, reply);
    return reply;
  }

  #refuse(script: string): void {
    const isUrgent = script.startsWith('#!lua flags=allow-oom');
    if (this.state === 'full' && !isUrgent)
      throw new ReplyError("OOM command not allowed when used memory > 'maxmemory'.");
    if (this.state === 'demoted') throw new ReplyError("READONLY You can't write against a read only replica.");
  }

  async #decide(gateway: string, name: string, args: readonly string[]) {
    if (name === 'eval') this.#knowsScript = true;
    else if (!this.#knowsScript) throw new ReplyError('NOSCRIPT No matching script.');
    const now = this.time.microseconds;
    const keyCount = Number(args[1]);
    const [keys, [, plans = '', ...presented]] = [args.slice(2, 2 + keyCount), args.slice(2 + keyCount)];
    const asked = keys.map((key, at) => ({
      id: key.slice('gateway:key:{'.length, -1),
      digest: presented[2 * at] ?? '',
      count: Number.parseInt(presented[2 * at + 1] ?? '', 10),
    }));
    const verdicts = await this.execute(gateway, name, [
      ...args.slice(0, 2),
      ...keys,
      String(now),
      plans,
      ...presented,
    ]);
    const call = { gateway, now, asked, verdicts };
    this.#observer.decided(call);
    return { reply: verdicts, call };
  }

  /** Runs decide.lua. Deliberate breaks replace it. */
  async execute(_gateway: string, name: string, args: readonly string[]): Promise<string[]> {
    return (await this.time.real(() => this.send(name, args))) as string[];
  }

  heard(call: DecideCall): void {
    this.#observer.heard(call);
  }
}

const microsecondsToTime = (now: number) => [String(Math.floor(now / 1e6)), String(now % 1e6)];

/** The way between one gateway and Redis. */
export class Link {
  readonly gateway: string;
  readonly server: Server;
  readonly random: Random;
  /** Each way, in ms, at most. */
  delayMs = 2;
  /** A share of the commands after which a connection breaks. */
  loss = 0;
  isCut = false;

  constructor(gateway: string, server: Server, random: Random) {
    this.gateway = gateway;
    this.server = server;
    this.random = random;
  }

  get time(): VirtualTime {
    return this.server.time;
  }

  /** Whether every command is answered in time. */
  isWell(timeoutMs: number): boolean {
    return !this.isCut && this.loss === 0 && this.server.state === 'well' && 2 * this.delayMs <= timeoutMs;
  }
}

interface Pending {
  readonly command: Command;
  readonly sentAt: number;
}

/** In place of an ioredis connection: its commands travel over a link, in order, and are answered, late, or lost. */
export class NetworkConnection extends Redis {
  readonly #link: Link;
  readonly #silentMs: number;
  readonly #onServer = () => this.#lookAtServer();
  #pending = new Set<Pending>();
  /** Counts connections: what belongs to an earlier one is lost. */
  #epoch = 0;
  #isStuck = false;
  #lastArrival = 0;
  #lastReply = 0;
  #heardAt = 0;
  #attempt = 0;
  #isWatched = false;

  constructor(link: Link, timeoutMs: number) {
    super({ ...failFast(timeoutMs), enableOfflineQueue: false });
    this.#link = link;
    this.#silentMs = this.options.socketTimeout ?? 0;
    loadOnConnect(this);
    link.server.changes.on('change', this.#onServer);
    this.#tryToConnect();
  }

  override sendCommand(command: Command): Promise<unknown> {
    if (this.status !== 'ready') {
      command.reject(new Error("Stream isn't writeable and enableOfflineQueue options is false"));
      return command.promise;
    }
    command.setTimeout(this.options.commandTimeout ?? 0);
    const { time } = this.#link;
    if (this.#pending.size === 0) this.#heardAt = time.now;
    const pending = { command, sentAt: time.now };
    this.#pending.add(pending);
    this.#watch();
    const breaksAt = this.#link.random.chance(this.#link.loss)
      ? this.#link.random.pick(['request', 'reply'])
      : undefined;
    if (breaksAt === 'request') this.#isStuck = true;
    this.#lastArrival = Math.max(this.#lastArrival, time.now + this.#delay());
    const epoch = this.#epoch;
    time.at(this.#lastArrival, () => {
      if (epoch === this.#epoch && !this.#isStuck && !this.#link.isCut) void this.#arrive(pending, epoch, breaksAt);
      else this.#isStuck ||= epoch === this.#epoch;
    });
    return command.promise;
  }

  /** Whether what is sent now is answered in time, as far as the network is concerned. */
  isWell(timeoutMs: number): boolean {
    const isLate = Math.max(this.#lastArrival, this.#lastReply) > this.#link.time.now + timeoutMs;
    return this.status === 'ready' && !this.#isStuck && !isLate && this.#link.isWell(timeoutMs);
  }

  override disconnect(): void {
    this.#link.server.changes.off('change', this.#onServer);
    this.status = 'end';
    this.#lose();
  }

  #delay(): number {
    return this.#link.random.between(0, this.#link.delayMs);
  }

  async #arrive(pending: Pending, epoch: number, breaksAt: string | undefined): Promise<void> {
    const { server, time, gateway } = this.#link;
    const { command } = pending;
    const { call, deliver } = await server.run(gateway, command).then(
      ({ reply, call }) => ({ call, deliver: () => command.resolve(reply) }),
      (fault) => ({ call: undefined, deliver: () => command.reject(fault) }),
    );
    if (breaksAt === 'reply') this.#isStuck = true;
    this.#lastReply = Math.max(this.#lastReply, time.now + this.#delay());
    time.at(this.#lastReply, () => {
      if (epoch !== this.#epoch) return;
      if (this.#isStuck || this.#link.isCut) {
        this.#isStuck = true;
        return;
      }
      this.#heardAt = time.now;
      this.#pending.delete(pending);
      if (call !== undefined) server.heard(call);
      deliver();
    });
  }

  /** A connection on which nothing is heard for long is closed. */
  #watch(): void {
    if (this.#isWatched) return;
    this.#isWatched = true;
    const epoch = this.#epoch;
    this.#link.time.at(this.#heardAt + this.#silentMs, () => {
      if (epoch !== this.#epoch) return;
      this.#isWatched = false;
      if (this.#pending.size === 0) return;
      if (this.#link.time.now - this.#heardAt >= this.#silentMs) this.#close();
      else this.#watch();
    });
  }

  #lookAtServer(): void {
    if (this.#link.server.state === 'down' && this.status === 'ready') this.#close();
  }

  #close(): void {
    this.status = 'reconnecting';
    this.#lose();
    this.emit('close');
    this.#retry();
  }

  #lose(): void {
    this.#epoch += 1;
    this.#lastArrival = 0;
    this.#lastReply = 0;
    this.#isStuck = false;
    this.#isWatched = false;
    const lost = this.#pending;
    this.#pending = new Set();
    for (const { command } of lost) command.reject(new Error('Connection is closed.'));
  }

  #retry(): void {
    this.#attempt += 1;
    this.#link.time.at(this.#link.time.now + retryDelayMs(this.#attempt), () => this.#tryToConnect());
  }

  #tryToConnect(): void {
    if (this.status === 'end') return;
    if (this.#link.isCut || this.#link.server.state === 'down') this.#retry();
    else {
      this.#attempt = 0;
      // What Replicas looks for: the same socket as before.
      Object.assign(this, { status: 'ready', stream: {} });
      this.emit('ready');
    }
  }
}
