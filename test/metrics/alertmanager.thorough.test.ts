import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { hasten } from '../support/alerts.ts';
import { cleanUp } from '../support/clean-up.ts';
import { send } from '../support/http.ts';
import { need } from '../support/install.ts';
import { freePort } from '../support/port.ts';
import { ROOT } from '../support/process.ts';
import { startPrometheus } from '../support/prometheus.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { startStack, temporaryFolder } from '../support/stack.ts';
import { webhookReceiver } from '../support/webhook-receiver.ts';

/** The shipped configuration. */
const ALERTMANAGER_CONFIGURATION = join(ROOT, 'deploy/alertmanager/alertmanager.yml');

/**
 * A real Alertmanager with the shipped configuration, except that it sends alerts at once.
 * @param chatUrl the webhook that receives them
 * @returns its URL
 */
async function startAlertmanager(chatUrl: string): Promise<string> {
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
  return url;
}

/** The part of a chat message that the shipped configuration fills in. */
interface Message {
  readonly channel: string;
  readonly attachments: readonly { readonly title: string; readonly title_link: string; readonly text: string }[];
}

test('a real alert reaches the right channel, and its link opens the runbook page', async () => {
  const { url: REDIS_URL, redis } = await emptyDatabase();
  const stack = await startStack({ REDIS_URL, REDIS_TIMEOUT_MS: '5000' });
  const chat = await webhookReceiver((response) => void response.end('ok'));
  const alertmanagerUrl = await startAlertmanager(chat.url);
  const runbook = `${stack.adminUrl}/runbook`;
  await startPrometheus(
    // Nothing listens on this port, so CoreDown fires.
    { gateway: [stack.adminUrl], core: ['http://127.0.0.1:1'], alertmanager: [alertmanagerUrl] },
    { alerts: hasten, runbook },
  );
  await redis.hset('gateway:plans', 'free.minute', '1e3');

  const messages = () => chat.deliveries.map(({ body }) => JSON.parse(body) as Message);
  const deliveries = () =>
    messages().map(
      ({ channel, attachments: [one] }) => `${channel} ${one?.title} ${one?.title_link.replace(runbook, '')}`,
    );
  const wanted = [
    '#animal-store FIRING: GatewayPlanValueRejected #gatewayplanvaluerejected',
    '#on-call FIRING: CoreDown #coredown',
  ];
  await expect.poll(deliveries, { timeout: 30_000 }).toEqual(expect.arrayContaining(wanted));
  expect(
    messages()
      .map(({ attachments: [one] }) => one?.text)
      .join(''),
  ).toContain('Core 127.0.0.1:1 does not respond.');

  const alerts = (await send(`${alertmanagerUrl}/api/v2/alerts`)).json as {
    labels: Record<string, string>;
    annotations: Record<string, string>;
  }[];
  for (const { labels, annotations } of alerts) {
    const { runbook_url: link = '' } = annotations;
    expect(link).toBe(`${runbook}#${labels.alertname?.toLowerCase()}`);
    expect(labels).not.toHaveProperty('runbook');
    const page = await send(runbook);
    expect([page.status, page.text.includes(` id="${new URL(link).hash.slice(1)}"`)]).toEqual([200, true]);
  }

  await redis.hset('gateway:plans', 'free.minute', '60');
  await expect
    .poll(deliveries, { timeout: 30_000 })
    .toContain('#animal-store RESOLVED: GatewayPlanValueRejected #gatewayplanvaluerejected');
});
