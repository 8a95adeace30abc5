import { Readable } from 'node:stream';
import { inspect } from 'node:util';
import { parentPort } from 'node:worker_threads';
import type { Ended } from './process.ts';

/** Runs the operators' command line once for each message, with the modules that are already loaded. */

export interface Run {
  readonly words: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  /** The standard input of the command. */
  readonly input?: string | Uint8Array;
}

const PROGRAM = new URL('../../gateway/operators/cli/program.ts', import.meta.url);
const written = { out: '', err: '' };
let runs = 0;

function keep(stream: NodeJS.WriteStream, name: keyof typeof written): void {
  // Every run adds a listener.
  stream.setMaxListeners(0);
  stream.write = (text: unknown, onWritten?: unknown) => {
    written[name] += text;
    if (typeof onWritten === 'function') onWritten();
    return true;
  };
}
keep(process.stdout, 'out');
keep(process.stderr, 'err');

/** Splits the input into parts as large as those of a pipe. */
function* partsOf(input: Buffer): Iterable<Buffer> {
  for (let at = 0; at < input.length; at += 65_536) yield input.subarray(at, at + 65_536);
}

const nothing = process.stdin;

async function run({ words, env, input }: Run): Promise<Ended> {
  Object.assign(written, { out: '', err: '' });
  process.argv = [process.execPath, PROGRAM.pathname, ...words];
  process.env = { ...env };
  process.exitCode = undefined;
  const value = input === undefined ? nothing : Readable.from(partsOf(Buffer.from(input as string)));
  Object.defineProperty(process, 'stdin', { value, configurable: true });
  // A new URL makes Node load the module again.
  await import(`${PROGRAM}?${++runs}`).catch((fault: unknown) => {
    process.exitCode = 1;
    written.err += inspect(fault);
  });
  return { code: Number(process.exitCode ?? 0), ...written };
}

parentPort?.on('message', async (asked: Run) => parentPort?.postMessage(await run(asked)));
