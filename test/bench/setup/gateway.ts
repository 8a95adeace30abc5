import { join } from 'node:path';
import { folder, type Service, startNode } from '../machine/processes.ts';
import type { Stage } from './stage.ts';

/** The gateway of a checkout as shipped, on ports of its own, in front of the stage's core. */
export const startGateway = (
  name: string,
  { coreUrl }: Pick<Stage, 'coreUrl'>,
  env: NodeJS.ProcessEnv,
  checkout = '.',
): Promise<Service> =>
  startNode(name, join(checkout, 'gateway/main.ts'), {
    PORT: '0',
    ADMIN_PORT: '0',
    CORE_URL: coreUrl,
    DATA_DIR: join(folder, name),
    ...env,
  });
