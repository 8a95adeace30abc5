import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'vitest';
import { cleanUp } from '../support/clean-up.ts';
import { send } from '../support/http.ts';
import { freePort } from '../support/port.ts';
import { ROOT, startProcess } from '../support/process.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { temporaryFolder } from '../support/stack.ts';
import { eventually } from '../support/workers.ts';

/** Tests the recipe in deploy/README.md for two gateways behind haproxy. */
const [, RECIPE = ''] =
  /```sh\n(export CORE_TOKEN[^`]*)```/.exec(readFileSync(join(ROOT, 'deploy', 'README.md'), 'utf8')) ?? [];

/** The recipe with free ports, and with the test's own Redis and database. */
async function recipeElsewhere(): Promise<{ script: string; clients: string }> {
  const { url } = await emptyDatabase();
  const DATABASE_URL = `sqlite:${await temporaryFolder()}/store.db`;
  const ports = new Map<string, string>([['7001', String(await freePort())]]);
  for (const [port] of RECIPE.matchAll(/\b(80|90|84)\d\d\b/g)) ports.set(port, String(await freePort()));
  const script = RECIPE.replace('redis://127.0.0.1:6379', url)
    .replaceAll(/\b(80|90|84)\d\d\b/g, (port) => ports.get(port) as string)
    .replace('node core', `PORT=${ports.get('7001')} DATABASE_URL=${DATABASE_URL} node core`)
    .replace('export', `export CORE_URL=http://127.0.0.1:${ports.get('7001')}`);
  return { script, clients: `http://127.0.0.1:${ports.get('8080')}` };
}

test('two gateways behind haproxy serve requests when started as the README says', async () => {
  const { script, clients } = await recipeElsewhere();
  const PATH = [dirname(process.execPath), process.env.PATH, '/usr/sbin'].join(':');
  const shell = startProcess('sh', ['-c', script], { PATH }, { detached: true });
  cleanUp(() => void process.kill(-(shell.child.pid as number), 'SIGKILL'));
  const answers = async () => {
    const { status, headers } = await send(`${clients}/v1/pets`).catch(() => ({ status: 0, headers: {} }));
    return [status, 'x-ratelimit-limit' in headers];
  };
  await eventually(answers).toEqual([401, true]);
  // haproxy logs whether each gateway is up.
  await eventually(() => shell.out().match(/"gateway":"http[^\n]*"admin"/g)).toHaveLength(2);
}, 60_000);
