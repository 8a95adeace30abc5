import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { type Cluster, Command, type Redis } from 'ioredis';

/** Runs decide.lua. */

export type RedisConnection = Redis | Cluster;

const TEXT = readFileSync(new URL('../../limiter/decide.lua', import.meta.url), 'utf8');
const SHA = createHash('sha1').update(TEXT).digest('hex');

/** A command without a timeout: the limiter has its own deadline and can use a late answer. */
class DecideCommand extends Command {
  override setTimeout(): void {}
}

/**
 * Runs decide.lua; the head of that file describes the parameters. If a node does not know the script, its text is
 * sent.
 */
export async function runDecide(redis: RedisConnection, keyCount: number, parameters: string[]): Promise<string[]> {
  try {
    return await send(redis, 'evalsha', SHA, keyCount, parameters);
  } catch (fault) {
    // Nothing was run.
    if (!(fault as Error).message.startsWith('NOSCRIPT ')) throw fault;
    return await send(redis, 'eval', TEXT, keyCount, parameters);
  }
}

/** Makes every new connection run the script's text once, without keys, so that no decision has to carry the text. */
export function loadOnConnect(redis: Redis): void {
  redis.on('ready', () => void send(redis, 'eval', TEXT, 0, ['', '']).catch(() => undefined));
}

const send = (redis: RedisConnection, name: string, script: string, keyCount: number, parameters: string[]) =>
  redis.sendCommand(new DecideCommand(name, [script, keyCount, ...parameters], { replyEncoding: 'utf8' })) as Promise<
    string[]
  >;
