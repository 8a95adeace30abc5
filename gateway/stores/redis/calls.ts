import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { type Cluster, Command, type Redis } from 'ioredis';
import { Counter, type Family, Histogram } from '../../../shared/process/counts.ts';
import { StoreUnavailable } from '../../limiter/limiter.ts';
import { startDeadline } from '../../limiter/outage.ts';
import { notTheRecord, OtherValue } from '../storage.ts';
import { DEADLINES_MISSED, REDIS_CALL } from './target.ts';

/** Calls to Redis: how decide.lua is run, call metrics, and the faults of failed commands. */

export type RedisConnection = Redis | Cluster;

/** The name of a key's hash. */
export const keyOf = (id: string): string => `gateway:key:{${id}}`;

const TEXT = readFileSync(new URL('../../limiter/decide.lua', import.meta.url), 'utf8');
const SHA = createHash('sha1').update(TEXT).digest('hex');

/**
 * Replaces the timeout of all commands, also of those that the library makes itself. Its own timer fires before a waiting
 * reply is read, so a stall of this process would count as a Redis that does not answer.
 */
Command.prototype.setTimeout = function setDeadline(this: Command, ms: number): void {
  const end = startDeadline(ms, () => {
    end();
    this.reject(new Error('Command timed out'));
  });
  this.promise.then(end, end);
};

/** A command without a timeout: the limiter has its own deadline and can use a late reply. */
class DecideCommand extends Command {
  override setTimeout(): void {}
}

/**
 * Runs decide.lua, which describes the parameters at its top. Sends the script's text to a node that lacks the script.
 * @param onText called before the text is sent, which is a separate call
 */
export const runDecide = (
  redis: RedisConnection,
  keyCount: number,
  parameters: string[],
  onText = () => {},
): Promise<string[]> =>
  send(redis, 'evalsha', SHA, keyCount, parameters).catch((fault: Error) => {
    // After any other fault, the script may have run.
    if (!fault.message.startsWith('NOSCRIPT ')) throw fault;
    onText();
    return send(redis, 'eval', TEXT, keyCount, parameters);
  });

/**
 * Makes every new connection run the script's text once, without keys, so that no decision has to send the text.
 * @param onAnswer called when Redis has answered, even with an error. A paused Redis answers reads, but no script
 */
export function loadOnConnect(redis: Redis, onAnswer = () => {}): void {
  const onFault = ({ name }: Error) => {
    if (name === 'ReplyError') onAnswer();
  };
  redis.on('ready', () => void send(redis, 'eval', TEXT, 0, ['', '']).then(onAnswer, onFault));
}

/** Runs the script without keys. @returns the fault if it cannot be run; undefined once it is loaded */
export const loadScript = (redis: RedisConnection): Promise<Error | undefined> =>
  runDecide(redis, 0, ['', '']).then(
    () => undefined,
    (fault: Error) => fault,
  );

const send = (redis: RedisConnection, name: string, script: string, keyCount: number, parameters: string[]) =>
  redis.sendCommand(new DecideCommand(name, [script, keyCount, ...parameters], { replyEncoding: 'utf8' })) as Promise<
    string[]
  >;

/** Measures the calls to Redis for decisions: the number of requests in each call, and its duration. */
export class CallCounts {
  readonly #sizes = new Histogram(
    { name: 'gateway_redis_batch_size', help: 'Requests decided by one call to Redis.' },
    [1, 2, 4, 8, 16, 32, 64, 128, 256],
  );
  readonly #seconds = new Histogram(
    { name: REDIS_CALL, help: 'Duration of one call to Redis, including failed calls.' },
    [0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25],
  );

  readonly #missed = new Counter({
    name: DEADLINES_MISSED,
    help: 'Calls to Redis without a reply within REDIS_TIMEOUT_MS.',
  });

  /** When the last call ended, as Unix time in ms, and how long it took. */
  last: { readonly at: number; readonly ms: number } | undefined;

  constructor() {
    this.#missed.declare('');
  }

  missed(): void {
    this.#missed.add();
  }

  ended(requests: number, milliseconds: number): void {
    this.#sizes.observe(requests);
    this.#seconds.observe(milliseconds / 1_000);
    this.last = { at: Date.now(), ms: milliseconds };
  }

  families(): Family[] {
    return [this.#sizes.family(), this.#seconds.family(), this.#missed.family()];
  }
}

/**
 * Returns Redis' reply. If a command fails, the data counts as unavailable, even if Redis has replied.
 * @param serverName returns what the reason calls the Redis that did not answer
 * @throws {StoreUnavailable} with a reason for operators
 */
export async function orUnavailable<T>(answer: Promise<T>, serverName = () => 'Redis'): Promise<T> {
  try {
    return await answer;
  } catch (cause) {
    const { message, command } = cause as Error & { command?: { args?: readonly unknown[] } };
    const [record] = command?.args ?? [];
    if (message.startsWith('WRONGTYPE ') && record !== undefined)
      throw new OtherValue(`Redis failed: WRONGTYPE in ${record}`, notTheRecord(String(record)));
    const why = refusalIn({ name: '', message }) ?? `${serverName()} does not answer.`;
    throw new StoreUnavailable(`Redis failed: ${inWords(message)}`, why);
  }
}

/** Puts the library's own messages about a lost connection into words for operators. */
export const inWords = (message: string): string =>
  /^(Stream isn't writeable|Reached the max retries) /.test(message) ? 'The connection was lost.' : message;

const OUT_OF_MEMORY = /^OOM /;

export const isOutOfMemory = ({ message }: Error): boolean => OUT_OF_MEMORY.test(message);

/** Faults after which the command has certainly not run: how each one begins, and the reason for operators. */
const REFUSALS: readonly [beginning: RegExp, why: string][] = [
  [/^(Stream isn't writeable|Cluster isn't ready)/, 'Redis is not connected.'],
  [OUT_OF_MEMORY, 'Redis is out of memory.'],
  [/^READONLY /, 'This Redis is a replica.'],
  [/^NOREPLICAS /, 'Redis has too few replicas.'],
  [/^MISCONF /, 'Redis cannot write to its disk.'],
  [/^(LOADING|MASTERDOWN) /, 'Redis is not ready yet.'],
  [/^CLUSTERDOWN /, 'The Redis cluster is down.'],
  [/^(TRYAGAIN|MOVED|ASK|Too many Cluster redirections)/, 'A slot of the Redis cluster is being moved.'],
  [/^(NOPERM|NOAUTH|WRONGPASS) |^ERR The user executing/, "The gateway's Redis user lacks a permission."],
  [/^BUSY /, 'A script keeps Redis busy.'],
  [/^WRONGTYPE /, 'A key in the Redis database holds a value of the wrong type.'],
];

/** Why Redis did not run the command; undefined if it may have. */
export function refusalIn({ name, message }: Error): string | undefined {
  const [, record] = /^WRONGTYPE in (\S+)/.exec(message) ?? [];
  if (record !== undefined) return notTheRecord(record);
  const [, why] = REFUSALS.find(([beginning]) => beginning.test(message)) ?? [];
  return why ?? (name === 'ReplyError' ? 'Redis refused the command.' : undefined);
}

export const mayHaveRun = (fault: Error): boolean => refusalIn(fault) === undefined;
