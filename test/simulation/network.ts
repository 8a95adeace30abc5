import { type Command, Redis } from 'ioredis';
import { loadOnConnect } from '../../gateway/stores/redis/calls.ts';
import { failFast, retryDelayMs, silentMs } from '../../gateway/stores/redis/connection.ts';
import type { Random } from './random.ts';
import type { Server } from './server.ts';
import type { VirtualTime } from './virtual-time.ts';

/** How long TCP and proxies may take to deliver data after the connection was closed. */
const LATEST_MS = 15_000;

/** The network link between one gateway and Redis. */
export class Link {
  readonly gateway: string;
  readonly server: Server;
  readonly #random: Random;
  #drawn = 0;
  #drawnAt = 0;
  /** The longest delay in each direction, in ms. */
  delayMs = 2;
  /** The fraction of commands that are lost. After a loss, the connection is silent. */
  loss = 0;
  isCut = false;

  constructor(gateway: string, server: Server, random: Random) {
    this.gateway = gateway;
    this.server = server;
    this.#random = random;
  }

  get time(): VirtualTime {
    return this.server.time;
  }

  /** Whether every command gets a reply in time. */
  isWell(timeoutMs: number): boolean {
    return !this.isCut && this.loss === 0 && this.server.state === 'well' && 2 * this.delayMs <= timeoutMs;
  }

  /** Random numbers that depend only on the time, so the network behaves the same if a plan has fewer steps. */
  draw(): Random {
    this.#drawn = this.#drawnAt === this.time.now ? this.#drawn + 1 : 0;
    this.#drawnAt = this.time.now;
    return this.#random.fork(`${this.#drawnAt} ${this.#drawn}`);
  }

  arrivesAfter(earlier: number): number {
    return Math.max(earlier, this.time.now + this.draw().between(0, this.delayMs));
  }
}

/**
 * Replaces an ioredis connection. Commands travel over a link in order, and their replies arrive in time, late or
 * never. After a loss, the connection is silent, as with TCP, until it is closed and reopened.
 */
export class NetworkConnection extends Redis {
  readonly #link: Link;
  readonly #silentMs: number;
  readonly #onServer = () => {
    if (this.#link.server.state === 'down' && this.status === 'ready') this.#close();
  };
  #pending = new Set<Command>();
  /** The number of connections so far. Commands that were sent on an earlier one get no reply. */
  #epoch = 0;
  #isSilent = false;
  #lastArrival = 0;
  #lastReply = 0;
  #repliedAt = 0;
  #attempts = 0;

  constructor(link: Link, timeoutMs: number) {
    super({ ...failFast(timeoutMs), enableOfflineQueue: false });
    this.#link = link;
    this.#silentMs = silentMs(timeoutMs);
    loadOnConnect(this);
    link.server.changes.on('change', this.#onServer);
    this.#tryToConnect();
  }

  /** Whether a command that is sent now would get a reply in time. */
  isWell(timeoutMs: number): boolean {
    const isLate = Math.max(this.#lastArrival, this.#lastReply) > this.#link.time.now + timeoutMs;
    return this.status === 'ready' && !this.#isSilent && !isLate && this.#link.isWell(timeoutMs);
  }

  override sendCommand(command: Command): Promise<unknown> {
    if (this.status === 'ready') this.#send(command);
    else command.reject(new Error("Stream isn't writeable and enableOfflineQueue options is false"));
    return command.promise;
  }

  override disconnect(): void {
    this.#link.server.changes.off('change', this.#onServer);
    this.status = 'end';
    this.#lose();
  }

  #send(command: Command): void {
    const { time } = this.#link;
    command.setTimeout(this.options.commandTimeout ?? 0);
    if (this.#pending.size === 0) {
      this.#repliedAt = time.now;
      this.#watch();
    }
    this.#pending.add(command);
    const [epoch, random] = [this.#epoch, this.#link.draw()];
    const loss = random.chance(this.#link.loss) ? random.pick(['request', 'reply']) : undefined;
    this.#isSilent ||= loss === 'request';
    this.#lastArrival = this.#link.arrivesAfter(this.#lastArrival);
    time.at(this.#lastArrival, () => void this.#arrive(command, epoch, loss));
  }

  async #arrive(command: Command, epoch: number, loss: string | undefined): Promise<void> {
    const { server, time, gateway, isCut } = this.#link;
    if (epoch !== this.#epoch) return this.#arriveLate(command);
    this.#isSilent ||= isCut;
    if (this.#isSilent) return;
    const { call, deliver } = await server.run(gateway, command).then(
      ({ reply, call }) => ({ call, deliver: () => command.resolve(reply) }),
      (fault) => ({ call: undefined, deliver: () => command.reject(fault) }),
    );
    this.#isSilent ||= loss === 'reply';
    this.#lastReply = this.#link.arrivesAfter(this.#lastReply);
    time.at(this.#lastReply, () => {
      if (epoch !== this.#epoch) return;
      this.#isSilent ||= this.#link.isCut;
      if (this.#isSilent) return;
      this.#repliedAt = time.now;
      this.#pending.delete(command);
      if (call !== undefined) server.noteReplies(call);
      deliver();
    });
  }

  /**
   * Handles a command that was in flight when its connection was closed. The command may still arrive, even much later,
   * but its reply is lost.
   */
  #arriveLate(command: Command): void {
    const { server, time, gateway } = this.#link;
    const random = this.#link.draw();
    if (random.chance(0.5)) return;
    time.at(time.now + (random.chance(0.7) ? 0 : random.between(0, LATEST_MS)), () => {
      if (!this.#link.isCut && server.state !== 'down') void server.run(gateway, command).catch(() => {});
    });
  }

  /** Closes the connection once it has been silent for too long while commands wait for replies. */
  #watch(): void {
    const epoch = this.#epoch;
    const { time } = this.#link;
    const look = () => {
      if (epoch !== this.#epoch || this.#pending.size === 0) return;
      if (time.now - this.#repliedAt >= this.#silentMs) this.#close();
      else time.at(this.#repliedAt + this.#silentMs, look);
    };
    time.at(this.#repliedAt + this.#silentMs, look);
  }

  #close(): void {
    this.status = 'reconnecting';
    this.#lose();
    this.emit('close');
    this.#tryAgain();
  }

  #lose(): void {
    this.#epoch += 1;
    [this.#lastArrival, this.#lastReply, this.#isSilent] = [0, 0, false];
    const lost = this.#pending;
    this.#pending = new Set();
    for (const command of lost) command.reject(new Error('Connection is closed.'));
  }

  #tryAgain(): void {
    this.#attempts += 1;
    this.#link.time.at(this.#link.time.now + retryDelayMs(this.#attempts), () => this.#tryToConnect());
  }

  #tryToConnect(): void {
    if (this.status === 'end') return;
    if (this.#link.isCut || this.#link.server.state === 'down') this.#tryAgain();
    else {
      this.#attempts = 0;
      // `Replicas` detects a new connection by its stream.
      Object.assign(this, { status: 'ready', stream: {} });
      this.emit('ready');
    }
  }
}
