import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import type { Logger } from './logger.ts';

/**
 * V8 notes where in the code long-lived objects are made, and makes them in old space from then on. When a load begins, all
 * that a small young generation holds is still in use, so that it takes the objects of every request for such, for good, and
 * each of those keeps others alive: with 512 requests at once, 15 MB at every scavenge.
 */
function forgetRequestsSoon(): void {
  setFlagsFromString('--no-allocation-site-pretenuring');
}

/** How a deployable stops. */
export interface Stopping {
  /** How long to go on serving, telling everyone that this ends. */
  readonly lameDuckMs: number;
  /** How long open connections may be used after that; as long again unless told otherwise. */
  readonly lingerMs?: number | undefined;
}

/** Sent over the message channel: what SIGTERM and SIGINT tell, in the sender's own measure. */
export interface StopMessage {
  readonly stop: Stopping;
}

/** What a deployable's main hands over once it serves. */
export interface Running {
  /** Where it can be reached, by name; told to the parent process, if there is one, and logged. */
  readonly addresses: Readonly<Record<string, string>>;
  stop(lameDuckMs: number, lingerMs?: number): Promise<void>;
}

/**
 * An operator's or an orchestrator's SIGTERM leaves time to whoever balances between several of us; Ctrl-C does not.
 */
const LAME_DUCK_MS = 1_000;
const LAST_LINES_MS = 2_000;

/**
 * Runs a deployable until it is told to stop: by SIGTERM or SIGINT, or by a message or the end of the parent process that
 * started it with a message channel. A fault at the start is told in words and ends with exit status 1; so does a second
 * signal, but not the first one after a message: what a terminal or a supervisor tells all processes at once, a parent may
 * have told its own already.
 */
export async function run(start: () => Promise<{ running: Running; logger: Logger }>): Promise<void> {
  forgetRequestsSoon();
  const { running, logger } = await start().catch(failedToStart);
  logger.info(running.addresses, 'listening');
  process.send?.(running.addresses);

  let stopping = false;
  let signalled = false;
  const stop = (reason: string, { lameDuckMs, lingerMs }: Stopping) => {
    if (stopping) return;
    stopping = true;
    logger.info({ reason }, 'stopping');
    running
      .stop(lameDuckMs, lingerMs)
      .then(() => lastLines(logger))
      .then(
        () => process.exit(0),
        (fault) => die(fault, 'did not stop cleanly'),
      );
  };
  const die = (fault: unknown, what: string) => {
    logger.fatal({ err: fault }, what);
    process.exit(1);
  };
  const onSignal = (signal: string) => {
    if (signalled) process.exit(1);
    signalled = true;
    stop(signal, { lameDuckMs: signal === 'SIGTERM' ? LAME_DUCK_MS : 0 });
  };
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  process.on('message', (message: Partial<StopMessage>) => message?.stop && stop('asked to', message.stop));
  process.on('disconnect', () => stop('parent gone', { lameDuckMs: 0 }));
  process.on('uncaughtException', (fault) => die(fault, 'uncaught exception'));
}

/** Waits for what is being written; the end of the process would cut it. A log that nobody reads holds up nothing. */
async function lastLines(logger: Logger): Promise<void> {
  const { promise: written, resolve } = Promise.withResolvers<void>();
  logger.flush(() => resolve());
  await Promise.race([written, sleep(LAST_LINES_MS)]);
}

function failedToStart(fault: unknown): never {
  process.stderr.write(`${explain(fault)}\n`);
  process.exit(1);
}

function explain(fault: unknown): string {
  if (!(fault instanceof Error)) return String(fault);
  const { code, address, port } = fault as NodeJS.ErrnoException & { address?: string; port?: number };
  if (code === 'EADDRINUSE') return `Cannot listen on ${address}:${port}: another program has this address.`;
  if (code === 'EACCES' && port !== undefined) return `Cannot listen on ${address}:${port}: not permitted.`;
  return fault.message;
}
