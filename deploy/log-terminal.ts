import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { styleText } from 'node:util';
import { LRUCache } from 'lru-cache';
import { type AdminAddress, exchange } from '../gateway/operators/cli/admin-client.ts';
import type { Activity } from '../gateway/stores/audit.ts';

/**
 * Formats the services' log for the terminal of `npm start`, one short line per entry. Everywhere else, the log stays
 * JSON.
 */

type LogLine = Readonly<Record<string, unknown>>;

const INFO = 30;
const FATAL = 60;
const LEVELS: Readonly<Record<number, readonly [name: string, style: Parameters<typeof styleText>[0]]>> = {
  20: ['debug', 'dim'],
  [INFO]: ['info', 'cyan'],
  40: ['warn', 'yellow'],
  50: ['error', 'red'],
  [FATAL]: ['fatal', 'red'],
};

export class TerminalLog {
  #admin: (() => Promise<AdminAddress>) | undefined;
  #since = Number.POSITIVE_INFINITY;
  /** The names of keys, by id. Each is requested once, and is empty if that fails, for example for a revoked key. */
  readonly #names = new LRUCache<string, string>({
    max: 1_000,
    fetchMethod: (id) => this.#ask(id).catch(() => ''),
  });

  /** Shows all requests that begin from now on. Of earlier requests, only warnings are shown. */
  showRequests(): void {
    this.#since = Date.now();
  }

  /** Shows names in place of key ids from now on. */
  nameKeysBy(admin: () => Promise<AdminAddress>): void {
    this.#admin = admin;
  }

  /** Shows the log of a service. A slow terminal delays only the log, not the service. */
  show(output: Readable): void {
    pipeline(this.texts(output), process.stdout, { end: false }).catch(() => undefined);
  }

  /** The log lines of a service that are to be shown, as text. */
  async *texts(output: Readable): AsyncGenerator<string> {
    for await (const text of createInterface({ input: output })) {
      const line = parseLine(text);
      if (line === undefined) yield `${text}\n`;
      else if (isShown(line, this.#since)) yield `${describeLine(line, await this.#nameOf(line.keyId))}\n`;
    }
  }

  async #nameOf(keyId: unknown): Promise<unknown> {
    if (typeof keyId !== 'string' || this.#admin === undefined) return keyId;
    return (await this.#names.fetch(keyId)) || keyId;
  }

  async #ask(keyId: string): Promise<string> {
    const admin = (await this.#admin?.()) as AdminAddress;
    const { body } = await exchange(admin, { method: 'GET', path: `/keys/${encodeURIComponent(keyId)}` });
    return (body as { name: string }).name;
  }
}

/**
 * Parses a log line; undefined for other text. Replaces terminal control characters, because logged paths contain what
 * clients sent.
 */
function parseLine(text: string): LogLine | undefined {
  try {
    const value: unknown = JSON.parse(text, (member, of) => (typeof of === 'string' ? harmless(of, member) : of));
    return typeof value === 'object' && value !== null ? (value as LogLine) : undefined;
  } catch {
    return undefined;
  }
}

/** Replaces control characters, except line feeds in a stack trace. */
const harmless = (text: string, member: string): string =>
  text.replaceAll(member === 'stack' ? /(?!\n)\p{Cc}/gu : /\p{Cc}/gu, '\u{fffd}');

/**
 * Whether to show a line. The core's line on a forwarded request repeats the gateway's, and the console's reads are not
 * of interest. A request is logged after its response, so `since` is compared with the time at which it began.
 */
function isShown({ msg, service, level, status, method, callerId, time, durationMs }: LogLine, since: number): boolean {
  if (msg === 'request' && service === 'core' && callerId !== undefined && Number(status) < 500) return false;
  if (Number(level) > INFO) return true;
  return (
    !(msg === 'operator request' && method === 'GET') && Date.parse(String(time)) - Number(durationMs ?? 0) >= since
  );
}

/** A log line as text. @param who its key, by name if it is known */
function describeLine({ err, ...others }: LogLine, who: unknown): string {
  const { message, stack } = (err ?? {}) as Partial<Error>;
  const line: LogLine = { reason: message, ...others };
  const { time, level, status, code, msg } = line;
  const isRequest = typeof status === 'number';
  const words = isRequest ? requestWords(line, who) : msg === 'activity' ? activityWords(line) : eventWords(line);
  // Local time of the day.
  const clock = styleText('dim', new Date(String(time)).toLocaleTimeString('sv-SE'));
  const text = [clock, ...words].filter(Boolean).join(' ');
  const isUnknown = code === 'internal_error' || Number(level) >= FATAL;
  return isUnknown && stack !== undefined ? `${text}\n${styleText('dim', stack)}` : text;
}

function requestWords(line: LogLine, who: unknown): unknown[] {
  const { status, method, path = '-', durationMs, plan, code, shadow, reason, service, msg } = line;
  const style = Number(status) >= 500 ? 'red' : Number(status) >= 400 ? 'yellow' : 'green';
  return [
    styleText(style, String(status)),
    method,
    path,
    styleText('dim', `${Math.max(1, Math.round(Number(durationMs)))} ms`),
    msg === 'operator request' ? 'operators' : service === 'core' && 'core',
    plan,
    who,
    shadow && `shadow: ${shadow}`,
    code && styleText('yellow', String(code)),
    reason,
  ];
}

/** An entry of the audit log. */
function activityWords({ activity }: LogLine): unknown[] {
  const { actor, action, target, reason, changes } = activity as Activity;
  const changed = changes.map(({ field, from = 'none', to = 'none' }) => `${field} ${from} -> ${to}`);
  return [styleText('cyan', action), target, 'by', [actor, ...changed, reason].filter(Boolean).join(', ')];
}

function eventWords({ level, time: _time, service, worker: _worker, msg, reason, ...others }: LogLine): unknown[] {
  const [name, style] = LEVELS[Number(level)] ?? ['info', 'cyan'];
  const inText = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value));
  const facts = Object.entries(others)
    .map(([member, value]) => `${member}=${inText(value)}`)
    .join(' ');
  return [
    styleText(style, name),
    service,
    reason === undefined ? msg : `${msg}: ${reason}`,
    facts && styleText('dim', facts),
  ];
}
