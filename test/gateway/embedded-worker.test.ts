import { expect, test } from 'vitest';
import { post, send } from '../support/http.ts';
import { ADMIN_TOKEN } from '../support/stack.ts';
import { launchWorkers, type Workers } from '../support/workers.ts';
const launch = (environment: NodeJS.ProcessEnv = {}) => launchWorkers({ WORKERS: '1', REDIS_URL: '', ...environment });
const list = (gateway: Workers, key: string) => send(`${gateway.gateway}/v1/pets`, { key });
const admin = (gateway: Workers, method: string, path: string, body?: unknown) =>
  body === undefined
    ? send(gateway.adminUrl + path, { method, key: ADMIN_TOKEN })
    : post(gateway.adminUrl + path, body, { method, key: ADMIN_TOKEN });
test('x', async () => {
  const gateway = await launch();
  const key = await gateway.issueKey();
  console.log((await list(gateway, key)).status, (await admin(gateway,'GET',`/keys/${key.slice(3,15)}`)).text);
  console.log(gateway.out());
});
