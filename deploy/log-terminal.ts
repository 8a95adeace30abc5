import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { type AdminAddress, callAdmin } from '../gateway/operators/cli/admin-client.ts';
import { beganAt, describeLine, isShown, isWarning, painter, parseLine } from './log-text.ts';

/** The log of services on the terminal of `npm start`. Anywhere else it stays JSON. */

const MOST_NAMES = 1_000;

export class TerminalLog {
  readonly #names = new Map<string, Promise<string | undefined>>();
  #admin: (() => Promise<AdminAddress>) | undefined;
  #since = Number.POSITIVE_INFINITY;

  /** What begins from now on is shown; of what began before, warnings only. */
  showRequests(): void {
    this.#since = Date.now();
  }

  /** Names of keys are asked for from now on. */
  nameKeysBy(admin: () => Promise<AdminAddress>): void {
    this.#admin = admin;
  }

  /** Shows the lines of a service. A terminal that is held up slows the service's log, and nothing else. */
  show(output: Readable): void {
    const paint = painter(process.stdout);
    const named = this.#nameOf.bind(this);
    const since = () => this.#since;
    async function* texts(): AsyncGenerator<string> {
      for await (const text of createInterface({ input: output })) {
        const line = parseLine(text);
        if (line === undefined) yield `${text}\n`;
        else if (isShown(line) && (isWarning(line) || beganAt(line) >= since()))
          yield `${describeLine(line, await named(line.keyId), paint)}\n`;
      }
    }
    pipeline(texts, process.stdout, { end: false }).catch(() => undefined);
  }

  /** The name of a key; undefined if there is none any more. Each key is asked for once. */
  #nameOf(keyId: unknown): Promise<string | undefined> | undefined {
    if (typeof keyId !== 'string' || this.#admin === undefined) return undefined;
    const known = this.#names.get(keyId);
    if (known !== undefined) return known;
    const [oldest] = this.#names.keys();
    if (this.#names.size >= MOST_NAMES && oldest !== undefined) this.#names.delete(oldest);
    const asked = nameAt(this.#admin, keyId).catch(() => undefined);
    this.#names.set(keyId, asked);
    return asked;
  }
}

async function nameAt(admin: () => Promise<AdminAddress>, keyId: string): Promise<string> {
  return ((await callAdmin(await admin(), 'GET', `/keys/${encodeURIComponent(keyId)}`)) as { name: string }).name;
}
