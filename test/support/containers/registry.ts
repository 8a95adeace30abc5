import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { send } from '../http.ts';
import { need } from '../install.ts';
import { startProcess } from '../process.ts';
import { temporaryFolder } from '../stack.ts';
import { REGISTRY } from './engine.ts';

/** A real registry, empty, where the tests' engine pulls from. Ended after the test. */
export async function startRegistry(): Promise<void> {
  need('docker-registry');
  const folder = await temporaryFolder();
  const configuration = {
    version: 0.1,
    storage: { filesystem: { rootdirectory: join(folder, 'data') } },
    http: { addr: REGISTRY },
  };
  const file = join(folder, 'config.yml');
  // JSON is YAML.
  writeFileSync(file, JSON.stringify(configuration));
  startProcess('docker-registry', ['serve', file], {}, { stdio: 'ignore' });
  const isUp = () =>
    send(`http://${REGISTRY}/v2/`).then(
      ({ status }) => status,
      () => 0,
    );
  await expect.poll(isUp).toBe(200);
}
