import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import { cleanUp } from './clean-up.ts';
import { send } from './http.ts';
import { need } from './install.ts';
import { freePort } from './port.ts';
import { ROOT } from './process.ts';
import { temporaryFolder } from './stack.ts';

/** The shipped configuration. */
export const ALERTMANAGER_CONFIGURATION = join(ROOT, 'deploy/alertmanager/alertmanager.yml');

/**
 * A real Alertmanager with the shipped configuration, except that it tells at once.
 * @param chatUrl that it tells
 */
export async function startAlertmanager(chatUrl: string): Promise<{ readonly url: string }> {
  const program = need('prometheus-alertmanager');
  const folder = await temporaryFolder();
  const file = join(folder, 'alertmanager.yml');
  const shipped = (await readFile(ALERTMANAGER_CONFIGURATION, 'utf8')).replaceAll('/etc/alertmanager', folder);
  await writeFile(
    file,
    shipped.replaceAll(/^( +group_wait:) \w+$/gm, '$1 0s').replaceAll(/^( +group_interval:) \w+$/gm, '$1 1s'),
  );
  await writeFile(join(folder, 'chat-url'), chatUrl);
  const address = `127.0.0.1:${await freePort()}`;
  const args = [`--config.file=${file}`, `--storage.path=${folder}/data`, `--web.listen-address=${address}`];
  const child = spawn(program, [...args, '--cluster.listen-address='], { stdio: 'ignore' });
  cleanUp(async () => {
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  });
  const url = `http://${address}`;
  const isReady = () =>
    send(`${url}/-/ready`).then(
      ({ status }) => status,
      () => 0,
    );
  await expect.poll(isReady).toBe(200);
  return { url };
}
