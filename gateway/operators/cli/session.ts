import { userInfo } from 'node:os';
import { createInterface } from 'node:readline/promises';
import { type Part, partsOf, searchText, withWho } from '../clients.ts';
import { AdminError, type AdminRequest, exchange, findAdmin } from './admin-client.ts';
import { harmless } from './text.ts';

/** The context of a command: it calls the gateway, prints, and prompts the operator. */

/** The exit codes. A command that has printed its output sets `process.exitCode`; other faults are thrown. */
export const EXIT = { done: 0, fault: 1, usage: 2, notFound: 3, conflict: 4, notConfirmed: 5 } as const;

export class Session {
  readonly #environment: NodeJS.ProcessEnv;

  constructor(environment: NodeJS.ProcessEnv) {
    this.#environment = environment;
  }

  /** The options that the current command shares with all commands, or with all that make changes. */
  options: { readonly yes?: true; readonly author?: string; readonly reason?: string } = {};

  /** @throws {AdminError} if the gateway refuses the call, or does not respond */
  async exchange(request: AdminRequest) {
    const { author, reason } = this.options;
    const isChange = request.method !== 'GET' && !request.isTrial;
    const path = isChange ? withWho(request.path, author ?? operator(), reason) : request.path;
    const reply = await exchange(await findAdmin(this.#environment), { ...request, path });
    if (reply.warning !== undefined) this.printNote(`Note: ${reply.warning}`);
    return reply;
  }

  async call<T = unknown>(method: AdminRequest['method'], path: string, body?: unknown): Promise<T> {
    return (await this.exchange({ method, path, body })).body as T;
  }

  readonly get = <T>(path: string): Promise<T> => this.call<T>('GET', path);

  parts<T extends Part>(path: string, asked?: Readonly<Record<string, string>>): AsyncGenerator<T> {
    return partsOf<T>(this.get, path, asked);
  }

  /** Whether output and errors are JSON. A command that cannot be parsed has no options, so this reads the arguments. */
  readonly isJson = process.argv.includes('--json');

  /**
   * Reduces a whole key to its id, so that no secret is sent. Prints a note if a secret was removed.
   * @param instead what the note recommends for next time; empty if there is to be no note, because the text was not
   *   typed in a shell
   * @throws {AdminError} for a secret without the id of its key
   */
  withoutSecret(given: string, instead = 'the id'): string {
    const { text, hadSecret } = searchText(given);
    if (hadSecret && text === '')
      throw new AdminError('usage', 'This looks like the secret of a key without its id. Nothing was sent.');
    const why = 'Note: the secret was removed and not sent. It may be in your shell history';
    if (hadSecret && instead !== '') this.printNote(`${why}: next time, use ${instead}.`);
    return text;
  }

  /** Whether the command has written to standard output. */
  hasWritten = false;

  /** Writes a part of the output, which may be streamed, to standard output. */
  write(text: string): void {
    this.hasWritten = true;
    process.stdout.write(text);
  }

  /** Whether a reader that leaves before the end of the output is a fault. */
  mustBeRead = false;

  /** Writes the end of the output. Resolves once all of it has been written; if that fails, the program exits. */
  writeEnd(text: string): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    process.stdout.write(text, (fault) => {
      if (!fault) resolve();
    });
    return promise;
  }

  /** Writes the result to standard output: as JSON if requested, otherwise as text. */
  print(value: unknown, describe: () => string): void {
    this.write(`${this.isJson ? JSON.stringify(value, undefined, 2) : describe()}\n`);
  }

  /** Writes a message to standard error, so that the output can be piped. */
  printNote(text: string): void {
    process.stderr.write(`${text}\n`);
  }

  /** Names the workers and gateways whose requests are missing from an answer, if any. */
  noteMissing(silent: readonly string[]): void {
    if (silent.length === 0) return;
    const names = harmless(silent.join(', '));
    this.printNote(`Note: these gateways did not respond, so their requests are missing: ${names}.`);
  }

  /** Shows the progress on one line, if standard error is a terminal and standard output is not. */
  progress(text: string, isLast: boolean): void {
    if (process.stderr.isTTY && !process.stdout.isTTY) process.stderr.write(`\r${text}${isLast ? '\n' : ''}`);
  }

  /** Asks for confirmation on a terminal. Without a terminal, reversible actions go ahead. */
  async confirmChange(question: string): Promise<void> {
    if (process.stdin.isTTY) await this.#ask(question);
  }

  /**
   * Asks for confirmation of an action that is irreversible or probably a mistake.
   * @throws {AdminError} unless the operator answers yes on the terminal, or passed --yes
   */
  async confirmForGood(question: string, why = 'This cannot be undone'): Promise<void> {
    if (!process.stdin.isTTY && !this.options.yes)
      throw new AdminError('not_confirmed', `${question} ${why}; without a terminal, pass --yes.`);
    await this.#ask(question);
  }

  /** Returns what the operator types on the terminal; empty for Ctrl-C and Ctrl-D. */
  async question(text: string): Promise<string> {
    const terminal = createInterface({ input: process.stdin, output: process.stderr });
    const answer = await terminal.question(text).catch(() => '');
    terminal.close();
    return answer.trim();
  }

  async #ask(question: string): Promise<void> {
    if (this.options.yes) return;
    if (!/^y(es)?$/i.test(await this.question(`${question} [y/N] `)))
      throw new AdminError('not_confirmed', 'Not confirmed; nothing was changed.');
  }
}

export function operator(): string {
  try {
    return userInfo().username;
  } catch {
    // The user has no entry in the password file, as in many containers.
    return 'unknown';
  }
}
