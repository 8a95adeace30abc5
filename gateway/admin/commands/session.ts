import { userInfo } from 'node:os';
import { createInterface } from 'node:readline/promises';
import { styleText } from 'node:util';
import { type AdminReply, type AdminRequest, exchange, findAdmin } from '../client.ts';

/** What every command works with: the gateway on one side, the operator on the other. */

/** The operator did not confirm, or could not be asked. */
export class NotConfirmed extends Error {}

export type Style = Parameters<typeof styleText>[0];

export interface SessionOptions {
  readonly json?: boolean;
  /** Whether questions are taken as answered. */
  readonly yes?: boolean;
}

export class Session {
  readonly #environment: NodeJS.ProcessEnv;
  readonly #options: () => SessionOptions;

  /** @param options read when they are needed: the command line is parsed after the commands are made */
  constructor(environment: NodeJS.ProcessEnv, options: () => SessionOptions) {
    this.#environment = environment;
    this.#options = options;
  }

  /** @throws {AdminError} for what the listener refuses, and when there is none */
  async exchange(request: AdminRequest): Promise<AdminReply> {
    const reply = await exchange(await findAdmin(this.#environment), request);
    if (reply.warning !== undefined) this.tell(`Note: ${reply.warning}`);
    return reply;
  }

  async call(method: AdminRequest['method'], path: string, body?: unknown): Promise<unknown> {
    return (await this.exchange({ method, path, body })).body;
  }

  get isJson(): boolean {
    return this.#options().json === true;
  }

  /** A piece of an answer that comes in pieces, on standard output. */
  write(text: string): void {
    process.stdout.write(text);
  }

  /** The answer, on standard output: as JSON where that is wanted, else in words. */
  print(value: unknown, describe: () => string): void {
    this.write(`${this.isJson ? JSON.stringify(value, undefined, 2) : describe()}\n`);
  }

  /** What is about to happen, on standard error, so that answers can be piped on. */
  tell(text: string): void {
    process.stderr.write(`${text}\n`);
  }

  /** Asks on a terminal. Without one there is nobody to ask: what can be taken back is done all the same. */
  async confirmChange(question: string): Promise<void> {
    if (process.stdin.isTTY) await this.#ask(question);
  }

  /**
   * Asks before what cannot be taken back.
   * @throws {NotConfirmed} unless the operator says yes, or said --yes
   */
  async confirmForGood(question: string): Promise<void> {
    if (!process.stdin.isTTY && !this.#options().yes)
      throw new NotConfirmed(`${question} This cannot be undone; without a terminal it takes --yes.`);
    await this.#ask(question);
  }

  async #ask(question: string): Promise<void> {
    if (this.#options().yes) return;
    const terminal = createInterface({ input: process.stdin, output: process.stderr });
    // Ctrl-C and Ctrl-D reject the question, and are no yes.
    const answer = await terminal.question(`${question} [y/N] `).catch(() => '');
    terminal.close();
    if (!/^y(es)?$/i.test(answer.trim())) throw new NotConfirmed('Not confirmed; nothing was changed.');
  }
}

/** Colour, where the stream is a terminal and NO_COLOR is not set: styleText looks after that. */
export const colour = (style: Style, text: string, stream: NodeJS.WriteStream = process.stdout): string =>
  styleText(style, text, { stream });

/** Whoever runs the command, by the system's name for them. */
export function operator(): string {
  try {
    return userInfo().username;
  } catch {
    // A user without an entry in the password file, as containers have them.
    return 'unknown';
  }
}
