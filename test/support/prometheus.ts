import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { vi } from 'vitest';
import { cleanUp } from './clean-up.ts';
import { send } from './http.ts';
import { need } from './install.ts';
import { freePort } from './port.ts';
import { ROOT } from './process.ts';
import { temporaryFolder } from './stack.ts';

/** The shipped configuration. */
export const PROMETHEUS_FOLDER = join(ROOT, 'deploy/prometheus');

export type Prometheus = Awaited<ReturnType<typeof startPrometheus>>;

const SHIPPED_RUNBOOK = 'http://127.0.0.1:9090/runbook';

/**
 * Starts a real Prometheus with the shipped configuration, except for targets and intervals.
 * @param targets URLs by job
 * @param runbook the URL of the runbook to which alerts link
 * @param alerts a function that changes the text of the alert rules
 */
export async function startPrometheus(
  targets: Readonly<Record<string, readonly string[]>>,
  {
    scrapeEvery = '1s',
    judgeEvery = '1s',
    runbook = SHIPPED_RUNBOOK,
    alerts = (shipped: string): string => shipped,
  } = {},
) {
  need('prometheus');
  const folder = await temporaryFolder();
  await cp(PROMETHEUS_FOLDER, folder, { recursive: true });
  const file = join(folder, 'prometheus.yml');
  await rewrite(file, (shipped) =>
    shipped
      .replace(`runbook: ${SHIPPED_RUNBOOK}`, `runbook: ${runbook}`)
      .replace('scrape_interval: 15s', `scrape_interval: ${scrapeEvery}`)
      .replace('evaluation_interval: 15s', `evaluation_interval: ${judgeEvery}`),
  );
  await rewrite(join(folder, 'rules/alerts.yml'), alerts);
  for (const [job, urls] of Object.entries(targets))
    await writeFile(join(folder, `targets/${job}.yml`), JSON.stringify([{ targets: urls.map(hostOf) }]));
  const address = `127.0.0.1:${await freePort()}`;
  const args = [`--config.file=${file}`, `--storage.tsdb.path=${folder}/data`, `--web.listen-address=${address}`];
  const child = spawn('prometheus', [...args, '--log.level=warn'], { stdio: 'ignore' });
  cleanUp(async () => {
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  });
  const url = `http://${address}`;
  await vi.waitFor(
    async () => {
      const { status } = await send(`${url}/-/ready`);
      if (status !== 200) throw new Error(`Prometheus is not ready: ${status}.`);
    },
    { timeout: 30_000, interval: 50 },
  );

  /** Calls the API. The path is relative to /api/v1. @returns `data` of the answer */
  async function api(path: string): Promise<unknown> {
    const { text, json } = await send(`${url}/api/v1${path}`);
    const { status, data } = json as { status: string; data: unknown };
    if (status !== 'success') throw new Error(`${path}: ${text}`);
    return data;
  }
  return {
    url,
    api,
    /** The current series of a query. @throws {Error} if Prometheus refuses the query */
    async query(expression: string) {
      const data = await api(`/query?query=${encodeURIComponent(expression)}`);
      const { result } = data as { result: { metric: Record<string, string>; value: [time: number, value: string] }[] };
      return result;
    },
  };
}

/** The value of the label `instance` for a service. */
export const hostOf = (url: string): string => new URL(url).host;

async function rewrite(file: string, change: (text: string) => string): Promise<void> {
  await writeFile(file, change(await readFile(file, 'utf8')));
}
