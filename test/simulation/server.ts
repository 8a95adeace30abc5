import { EventEmitter } from 'node:events';
import { Command, type Redis, ReplyError } from 'ioredis';
import type { VirtualTime } from './virtual-time.ts';

/** A call to decide.lua that Redis has executed. */
export interface DecideCall {
  readonly gateway: string;
  /** The Redis time in microseconds. */
  readonly now: number;
  readonly asked: readonly {
    readonly id: string;
    readonly digest: string;
    readonly count: number;
    /**
     * For a charge: the tokens of local admissions, how many of them are taken from the minute bucket, and how many
     * tokens of late decisions are returned.
     */
    readonly charge?: { readonly taken: number; readonly due: number; readonly returned: number };
  }[];
  readonly verdicts: readonly string[];
}

export interface Observer {
  /** Called when Redis has executed a call. The reply may still be lost. */
  decided(call: DecideCall): void;
  /** Called when the reply to a call has arrived. */
  noteReplies(call: DecideCall): void;
  /** @returns a copy of the expected data, for `restored` */
  copied(): unknown;
  restored(known: unknown): void;
}

const READS = new Set(['hgetall', 'hget', 'time', 'info', 'exists', 'zscore', 'zrandmember', 'xrevrange', 'script']);
const DECIDE = /^#!lua\n-- Decides a batch/;
const CHANGE = /^#!lua.*\n-- Compares records/;
const CLOCK = "return redis.call('TIME')";

/** The only Redis of a simulation: a real one with a virtual clock and simulated faults. */
export class Server {
  /** `down` refuses connections, `full` refuses commands that need memory, `demoted` refuses writes. */
  state: 'well' | 'down' | 'full' | 'demoted' = 'well';
  readonly changes = new EventEmitter().setMaxListeners(0);
  readonly time: VirtualTime;
  readonly #real: Redis;
  readonly #observer: Observer;
  /**
   * Replies that are cached until the next change by an operator, because gateways read the plans and the audit log
   * continuously.
   */
  readonly #same = new Map<string, Promise<unknown>>();
  #knowsScript = false;
  #replica: { readonly values: readonly [name: Buffer, value: Buffer][]; readonly known: unknown } | undefined;

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

  /** From now on, only changes by operators update the replica, because they wait for it. */
  async delayReplica(): Promise<void> {
    const names = await this.time.real(() => this.#real.keysBuffer('gateway:*'));
    const dump = async (name: Buffer): Promise<[Buffer, Buffer]> => [name, await this.#real.dumpBuffer(name)];
    const values = await this.time.real(() => Promise.all(names.map(dump)));
    this.#replica = { values, known: this.#observer.copied() };
  }

  /** Promotes the replica. Writes since its last update are lost. */
  async failOver(): Promise<void> {
    const replica = this.#replica;
    if (replica === undefined) return;
    this.#replica = undefined;
    this.#same.clear();
    await this.time.real(async () => {
      await this.#real.flushdb();
      await Promise.all(replica.values.map(([name, value]) => this.#real.restore(name, 0, value)));
    });
    this.#observer.restored(replica.known);
  }

  /** Executes a command when it arrives. @returns its reply, and the call if it was one to decide.lua */
  async run(gateway: string, command: Command): Promise<{ reply: unknown; call?: DecideCall }> {
    const { name } = command;
    const args = command.args as string[];
    const now = this.time.microseconds;
    if (name === 'time' || String(args[0]) === CLOCK) return { reply: microsecondsToTime(now) };
    const isDecide = name === 'evalsha' || DECIDE.test(String(args[0]));
    if (!READS.has(name)) this.#refuse(String(args[0]));
    if (isDecide) return await this.#decide(gateway, name, args);
    if ((name === 'hgetall' && args[0]?.includes('plans')) || name === 'xrevrange')
      return { reply: await this.#readOnce(name, args) };
    // The last parameter of a change is its deadline.
    const isChange = CHANGE.test(String(args[0]));
    const deadline = Number(args.at(-1)) <= now ? '0' : '9e15';
    const reply = await this.send(name, isChange ? args.with(-1, deadline) : args);
    if (!READS.has(name)) {
      this.#same.clear();
      if (this.#replica !== undefined) await this.delayReplica();
    }
    return { reply };
  }

  /** Sends a command to the real Redis, whatever the state of the simulated one. */
  send(name: string, args: readonly string[]): Promise<unknown> {
    const command = new Command(name, [...args], { replyEncoding: 'utf8' });
    return this.time.real(() => this.#real.sendCommand(command) as Promise<unknown>);
  }

  #readOnce(name: string, args: readonly string[]): Promise<unknown> {
    const what = [name, ...args].join(' ');
    const reply = this.#same.get(what) ?? this.send(name, args);
    this.#same.set(what, reply);
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
    const asked = keys.map((key, at) => {
      const [digest = '', what = ''] = presented.slice(2 * at, 2 * at + 2);
      const [, charge, due, returned] = /^charge (\d+)(?: \d+){5} (\d+) (\d+)$/.exec(what) ?? [];
      const id = key.slice('gateway:key:{'.length, -1);
      return charge === undefined
        ? { id, digest, count: Number.parseInt(what, 10) }
        : { id, digest, count: 0, charge: { taken: Number(charge), due: Number(due), returned: Number(returned) } };
    });
    const sent = [...args.slice(0, 2), ...keys, String(now), plans, ...presented];
    const verdicts = await this.execute(gateway, name, sent);
    const call = { gateway, now, asked, verdicts };
    this.#observer.decided(call);
    return { reply: verdicts, call };
  }

  /** Executes decide.lua. Deliberate breaks override this method. */
  async execute(_gateway: string, name: string, args: readonly string[]): Promise<string[]> {
    return (await this.send(name, args)) as string[];
  }

  /** Call this when the reply to a call has arrived. */
  noteReplies(call: DecideCall): void {
    this.#observer.noteReplies(call);
  }
}

const microsecondsToTime = (now: number) => [String(Math.floor(now / 1e6)), String(now % 1e6)];
