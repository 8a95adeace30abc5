import { startService } from './process.ts';
import { signalAll } from './workers.ts';

/**
 * Starts a service in its own process.
 * @param main the path of the main.ts of the gateway or the core
 * @param environment the settings, with 0 for each port
 */
export async function startRestartable(main: string, environment: NodeJS.ProcessEnv) {
  let service = await startService(main, environment);
  const { addresses } = service;
  const { admin, gateway, core } = addresses;
  const portOf = (url: string | undefined) => (url === undefined ? '0' : new URL(url).port);
  return {
    addresses,
    /** Sends a signal to the service and its workers. */
    signal: (signal: NodeJS.Signals) => signalAll(service.child.pid as number, signal),
    /** Restarts the service on the same addresses, once it has exited. */
    async restart() {
      await service.ended;
      service = await startService(main, { ...environment, PORT: portOf(gateway ?? core), ADMIN_PORT: portOf(admin) });
    },
  };
}
