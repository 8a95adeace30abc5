import type { TestProject } from 'vitest/node';
import { startEngine } from '../support/containers/engine.ts';
import { makeBaseStandIn, makeStandIns, nameInDeploy } from '../support/containers/stand-ins.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** The engine's socket; empty if no engine can be started. */
    engineSocket: string;
  }
}

/**
 * The test files that need no service images. Building the images takes minutes, unless an earlier run has left them
 * behind.
 */
const NEED_BASE_ONLY = ['built-images', 'pinned-base'];

const PING_MS = 120_000;

/**
 * Starts the engine and builds the images. If that fails, no test runs, and the last line of the run gives the reason.
 */
export default async function provideEngine(project: TestProject): Promise<() => Promise<void>> {
  try {
    const engine = await startEngine();
    try {
      const isBaseEnough = process.argv.some((argument) => NEED_BASE_ONLY.some((name) => argument.startsWith(name)));
      const make = isBaseEnough ? makeBaseStandIn : makeStandIns;
      await make(engine.docker);
      // Once containers run and npm in them reaches its registry, any later failure is the project's own.
      await engine.docker(
        ['run', '--rm', '--network', 'host', nameInDeploy('node'), 'npm', 'view', 'zod', 'version'],
        PING_MS,
      );
    } catch (fault) {
      await engine.stop();
      throw fault;
    }
    project.provide('engineSocket', engine.socket);
    return engine.stop;
  } catch (fault) {
    project.provide('engineSocket', '');
    const [reason = ''] = (fault as Error).message.split('\n');
    return async () => void process.stdout.write(`No containers were tested: ${reason.replace(/\.$/, '')}.\n`);
  }
}
