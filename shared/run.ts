import type { Logger } from './logger.ts';

/** What a deployable's main hands over once it serves. */
export interface Running {
  /** Where it can be reached, by name; told to the parent process, if there is one, and logged. */
  readonly addresses: Readonly<Record<string, string>>;
  /** @param lameDuckMs how long to go on serving, telling everyone that this ends */
  stop(lameDuckMs: number): Promise<void>;
}

/**
 * An operator's or an orchestrator's SIGTERM leaves time to whoever balances between several of us; Ctrl-C does not.
 */
const LAME_DUCK_MS = 1_000;

/**
 * Runs a deployable until it is told to stop: by SIGTERM or SIGINT, or by the end of the parent process that started it
 * with a message channel. A fault at the start is told in words and ends with exit status 1; so does a second signal.
 */
export async function run(start: () => Promise<{ running: Running; logger: Logger }>): Promise<void> {
  const { running, logger } = await start().catch(failedToStart);
  logger.info(running.addresses, 'listening');
  process.send?.(running.addresses);

  let stopping = false;
  const stop = (reason: string) => {
    stopping = true;
    logger.info({ reason }, 'stopping');
    running.stop(reason === 'SIGTERM' ? LAME_DUCK_MS : 0).then(
      () => process.exit(0),
      (fault) => die(fault, 'did not stop cleanly'),
    );
  };
  const die = (fault: unknown, what: string) => {
    logger.fatal({ err: fault }, what);
    process.exit(1);
  };
  const onSignal = (signal: string) => (stopping ? process.exit(1) : stop(signal));
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  process.on('disconnect', () => stopping || stop('parent gone'));
  process.on('uncaughtException', (fault) => die(fault, 'uncaught exception'));
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
