import { type ChildProcess, spawn } from 'node:child_process';
import type { Socket } from 'node:net';

/**
 * Kills a server when this process exits, however it exits. A shell does this: it waits for the end of a pipe that only
 * this process keeps open.
 */
export function endsWithUs(server: ChildProcess): void {
  if (server.pid === undefined) return;
  const killAtEnd = ['-c', 'read _; kill -9 "$1"', 'sh', String(server.pid)];
  // The shell has its own session, so Ctrl-C does not kill it first.
  const guard = spawn('sh', killAtEnd, { stdio: ['pipe', 'ignore', 'ignore'], detached: true });
  guard.unref();
  (guard.stdin as Socket).unref();
  server.once('exit', () => guard.kill());
}
