import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { Command, type Redis } from 'ioredis';
import type { RedisConnection } from './connection.ts';

/** How decide.lua is run. */

const TEXT = readFileSync(new URL('../decide.lua', import.meta.url), 'utf8');
const SHA = createHash('sha1').update(TEXT).digest('hex');

/** It has no timeout: the limiter has a deadline of its own, and can use an answer that is late. */
class DecideCommand extends Command {
  override setTimeout(): void {}
}

/** Runs decide.lua: its head describes the parameters. A node that has not seen the script is sent its text. */
export async function runDecide(redis: RedisConnection, keyCount: number, parameters: string[]): Promise<string[]> {
  try {
    return await send(redis, 'evalsha', SHA, keyCount, parameters);
  } catch (fault) {
    // Nothing was run.
    if (!(fault as Error).message.startsWith('NOSCRIPT ')) throw fault;
    return await send(redis, 'eval', TEXT, keyCount, parameters);
  }
}

/** Has every new connection begin with the script's text, on no key, so that no decision has to carry it. */
export function loadOnConnect(redis: Redis): void {
  redis.on('ready', () => void send(redis, 'eval', TEXT, 0, ['', '']).catch(() => undefined));
}

const send = (redis: RedisConnection, name: string, script: string, keyCount: number, parameters: string[]) =>
  redis.sendCommand(new DecideCommand(name, [script, keyCount, ...parameters], { replyEncoding: 'utf8' })) as Promise<
    string[]
  >;
