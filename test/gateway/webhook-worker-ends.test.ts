import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { send } from '../support/http.ts';
import { scrape } from '../support/metrics.ts';
import { WEBHOOK_SECRET, webhookReceiver } from '../support/webhook-receiver.ts';
import { eventually, startWorkers, type Workers } from '../support/workers.ts';

/** An event outlives the worker whose decision it came from: the primary sends it. */

test.for<[what: string, end: (workers: Workers) => void]>([
  ['is killed', ({ pids }) => process.kill(pids()[0] as number, 'SIGKILL')],
  ['is renewed', ({ child }) => child.kill('SIGHUP')],
])('an event that waits for its retry when its worker %s is sent, once', async ([, end]) => {
  let status = 500;
  const receiver = await webhookReceiver((response) => void response.writeHead(status).end());
  const workers = await startWorkers({ WORKERS: '1', WEBHOOK_URL: receiver.url, WEBHOOK_SECRET });
  const key = await workers.issueKey({ plan: 'free', day: 5 });
  const list = () => send(`${workers.gateway}/v1/pets`, { key });
  for (let sent = 0; sent < 4; sent++) await list();
  await eventually(() => receiver.types()).toEqual(['key.day_80']);
  const [before] = workers.pids();
  end(workers);
  await eventually(() => workers.pids()[0]).not.toBe(before);
  status = 204;
  // The replacement reports the same event again.
  await list();
  const counts = async (): Promise<unknown[]> => {
    const metrics = await scrape(workers.adminUrl);
    return ['delivered', 'given_up', 'dropped'].map((result) =>
      metrics.sum('gateway_webhook_deliveries_total', { result }),
    );
  };
  await eventually(counts).toEqual([2, 0, 0]);
  await sleep(300);
  expect([...new Set(receiver.types())]).toEqual(['key.day_100', 'key.day_80']);
  expect(await counts()).toEqual([2, 0, 0]);
});
