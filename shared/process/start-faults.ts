import { once } from 'node:events';
import net, { type AddressInfo } from 'node:net';

type ListenFault = NodeJS.ErrnoException & { address?: string; port?: number; setting?: string };

const LISTEN_FAULTS: Readonly<Record<string, (setting: string) => string>> = {
  EADDRINUSE: (setting) => `another program has this address. Stop it, or set ${setting} to a free port.`,
  EACCES: (setting) => `not permitted. Set ${setting} to a port from 1024 on.`,
  EADDRNOTAVAIL: (setting) =>
    `this machine has no such address. Set ${setting.replace('PORT', 'HOST')} to one of its own.`,
};

/** Describes a fault for operators. Several faults get a line each. */
export function explain(fault: unknown): string {
  if (fault instanceof AggregateError) return [...new Set(fault.errors.map(explain))].join('\n');
  if (!(fault instanceof Error)) return String(fault);
  const { code = '', address, port, setting } = fault as ListenFault;
  const advice = setting === undefined ? undefined : LISTEN_FAULTS[code]?.(setting);
  return advice === undefined ? fault.message : `Cannot listen on ${address}:${port}: ${advice}`;
}

/**
 * Takes a port briefly.
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
