import { executionAsyncResource } from 'node:async_hooks';
import { once } from 'node:events';
import net, { type AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import type { Logger } from './logger.ts';

/**
 * V8 records which code creates long-lived objects, and from then on allocates them in old space. When load begins,
 * everything in a small young generation is still in use, so V8 treats the objects of all later requests as long-lived.
 * Each of them keeps others alive, which adds up to 15 MB at every scavenge with 512 concurrent requests.
 */
function disablePretenuring(): void {
  setFlagsFromString('--no-allocation-site-pretenuring');
}

const kept: object[] = [];

/**
 * Keeps one object of `process.nextTick` alive. Its literal has computed names, and V8 references the hidden classes
 * behind them only weakly. If a full garbage collection finds no such object, as in an idle process, V8 loses them.
 * From then on, every call takes a slow path: over 1 µs in place of 0.2. A request makes several such calls.
 */
export function keepTickClass(): void {
  process.nextTick(() => kept.push(executionAsyncResource()));
}

/** How a service stops. */
export interface Stopping {
  /** How long to keep serving while the stop is announced. */
  readonly lameDuckMs: number;
  /** How long open connections may be used after that; the same time by default. */
  readonly lingerMs?: number | undefined;
}

/** The message that acts like SIGTERM and SIGINT, with the sender's own times. */
interface StopMessage {
  readonly stop: Stopping;
}

type Addresses = Readonly<Record<string, string>>;

/** A running service. */
export interface Running {
  /** The service's addresses by name. They are logged, and sent to the parent process if there is one. */
  readonly addresses: Addresses;
  stop(lameDuckMs: number, lingerMs?: number): Promise<void>;
}

/** A service that may serve requests before it has started completely. If the start fails, its addresses reject. */
export interface Starting extends Omit<Running, 'addresses'> {
  readonly addresses: Addresses | Promise<Addresses>;
}

/** SIGTERM from an operator or orchestrator leaves time for load balancers. Ctrl-C does not. */
const LAME_DUCK_MS = 1_000;
const LAST_LINES_MS = 2_000;
/** A process whose parent is gone must exit within 10 s, because nothing else would stop it. */
const ORPHAN_MS = 9_000;

/**
 * Runs a service until SIGTERM or SIGINT, or until a parent process with a message channel asks it to stop or exits. If
 * the start fails, the fault is written to standard error, and the process exits with status 1. A second signal also
 * ends the process with status 1. A stop message does not count as the first signal: a terminal or supervisor may
 * signal all processes after the parent has asked its children to stop.
 */
export async function run(start: () => Promise<{ running: Starting; logger: Logger }>): Promise<void> {
  disablePretenuring();
  keepTickClass();
  let stopping = false;
  let signalled = false;
  // Nothing listens yet, so there is nothing to finish.
  let stop = (_reason: string, _how: Stopping): void => process.exit(0);
  const onSignal = (signal: string) => {
    if (signalled) process.exit(1);
    signalled = true;
    stop(signal, { lameDuckMs: signal === 'SIGTERM' ? LAME_DUCK_MS : 0 });
  };
  // These handlers are never replaced, because a signal in between would be lost.
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);

  const { running, logger } = await start().catch(failedToStart);
  const die = (fault: unknown, what: string) => {
    logger.fatal({ err: fault }, what);
    process.exit(1);
  };
  stop = (reason, { lameDuckMs, lingerMs }) => {
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
  process.on(
    'message',
    (message: Partial<StopMessage>) => message?.stop && stop('requested by the parent', message.stop),
  );
  process.on('disconnect', () => {
    setTimeout(() => process.exit(1), ORPHAN_MS).unref();
    stop('parent gone', { lameDuckMs: 0 });
  });
  process.on('uncaughtException', (fault) => die(fault, 'uncaught exception'));

  try {
    const addresses = await running.addresses;
    if (stopping) return;
    logger.info(addresses, 'listening');
    process.send?.(addresses);
  } catch (fault) {
    // If a service is stopped during its start, the start may fail.
    if (!stopping) failedToStart(fault);
  }
}

/**
 * Waits until log lines are written, because exiting would truncate them. The wait is limited, so that a log without a
 * reader does not block.
 */
async function lastLines(logger: Logger): Promise<void> {
  const { promise: written, resolve } = Promise.withResolvers<void>();
  logger.flush(() => resolve());
  await Promise.race([written, sleep(LAST_LINES_MS)]);
}

function failedToStart(fault: unknown): never {
  process.stderr.write(`${explain(fault)}\n`);
  process.exit(1);
}

type ListenFault = NodeJS.ErrnoException & { address?: string; hostname?: string; port?: number; setting?: string };

/** The advice for an address or a name that the machine does not have. @param setting the port's setting */
const anotherHost = (setting: string): string =>
  `Set ${setting.replace('PORT', 'HOST')} to an address of this machine.`;
const unresolved = (setting: string): string => `this name does not resolve. ${anotherHost(setting)}`;

const LISTEN_FAULTS: Readonly<Record<string, (setting: string) => string>> = {
  EADDRINUSE: (setting) => `another program uses this address. Stop it, or set ${setting} to a free port.`,
  EACCES: (setting) => `not permitted. Set ${setting} to a port of at least 1024.`,
  EADDRNOTAVAIL: (setting) => `this machine has no such address. ${anotherHost(setting)}`,
  ENOTFOUND: unresolved,
  EAI_AGAIN: unresolved,
};

/** Describes a fault for operators. If there are several, each gets its own line. */
export function explain(fault: unknown): string {
  if (fault instanceof AggregateError) return [...new Set(fault.errors.map(explain))].join('\n');
  if (!(fault instanceof Error)) return String(fault);
  const { code = '', address, hostname, port, setting } = fault as ListenFault;
  const advice = setting === undefined ? undefined : LISTEN_FAULTS[code]?.(setting);
  // The system's fault has no port if a name does not resolve or the port is 0.
  const place = [hostname ?? address, port].filter((part) => part !== undefined).join(':');
  return advice === undefined ? fault.message : `Cannot listen on ${place}: ${advice}`;
}

/**
 * Opens a port briefly, to check whether it is free.
 * @param setting the port's setting
 * @returns the port's number; for 0 a free one
 * @throws the system's fault, which `explain` describes
 */
export async function tryPort(host: string, port: number, setting: string): Promise<number> {
  const server = net.createServer().listen(port, host);
  await once(server, 'listening').catch((fault: Error) => {
    throw Object.assign(fault, { setting });
  });
  const { port: taken } = server.address() as AddressInfo;
  server.close();
  return taken;
}
