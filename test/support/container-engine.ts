import { installPackages, TOOLS } from './node-packages.ts';

/**
 * Starts a server in a container, and prints its image. Returns undefined if no engine is running. Prints the reason
 * and returns undefined if the server cannot be started. The tests then use the machine's own server.
 */
export async function startInContainer<Server>(
  image: string,
  start: (engine: typeof import('testcontainers')) => Promise<Server>,
): Promise<Server | undefined> {
  installPackages(TOOLS);
  // Importing it takes half a second, so it is imported only when needed.
  const engine = await import('testcontainers');
  const isRunning = await engine.getContainerRuntimeClient().then(Boolean, () => false);
  if (!isRunning) return undefined;
  try {
    const server = await start(engine);
    process.stdout.write(`The tests use a container of ${image}.\n`);
    return server;
  } catch (fault) {
    const [reason] = (fault as Error).message.split('\n');
    process.stdout.write(`The tests use no container of ${image}: ${reason}\n`);
    return undefined;
  }
}
