import { installPackages, TOOLS } from './node-packages.ts';

/**
 * Starts a server in a container, and prints the image. Returns undefined if no engine is running. If the server cannot
 * be started, prints the reason and returns undefined. The tests then use the machine's own server.
 */
export async function startInContainer<Server>(
  image: string,
  start: (engine: typeof import('testcontainers')) => Promise<Server>,
): Promise<Server | undefined> {
  installPackages(TOOLS);
  // The import takes half a second, so it is delayed until an engine is needed.
  const engine = await import('testcontainers');
  const isRunning = await engine.getContainerRuntimeClient().then(Boolean, () => false);
  if (!isRunning) return undefined;
  try {
    const server = await start(engine);
    process.stdout.write(`The tests use a container of ${image}.\n`);
    return server;
  } catch (fault) {
    const [reason] = (fault as Error).message.split('\n');
    process.stdout.write(`The tests cannot use a container of ${image}: ${reason}\n`);
    return undefined;
  }
}
