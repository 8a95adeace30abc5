import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { vi } from 'vitest';
import { cleanUp } from './clean-up.ts';
import { send } from './http.ts';
import { installPackage, isOnPath } from './install.ts';
import { freePort } from './port.ts';
import { ROOT } from './process.ts';
import { temporaryFolder } from './stack.ts';

/** The configuration that is shipped. */
export const PROMETHEUS_FOLDER = join(ROOT, 'deploy/prometheus');

/** Prometheus and promtool, from PATH; else, as root on Debian, they are installed. */
export function needPrometheus(): void {
  if (!isOnPath('promtool') || !isOnPath('prometheus')) installPackage('prometheus', 'install prometheus and promtool');
}

/** One series of a query's answer. */
export interface Answered {
  readonly metric: Readonly<Record<string, string>>;
  readonly value: readonly [time: number, value: string];
}

export interface Prometheus {
  readonly url: string;
  /** What a query gives now. @throws {Error} for one that Prometheus does not take */
  query(expression: string): Promise<Answered[]>;
  /** `data` of a call of its API, by the path behind /api/v1. */
  api(path: string): Promise<unknown>;
}

interface Haste {
  /** How often it looks, and how often it judges what it saw, as Prometheus writes a length of time. */
  readonly scrapeEvery?: string;
  readonly judgeEvery?: string;
  /** What becomes of the text of the alerts. */
  readonly alerts?: (shipped: string) => string;
}

/**
 * A real Prometheus with the configuration that is shipped, but for where its targets are and how often it looks.
 * @param targets URLs, by job
 */
export async function startPrometheus(
  targets: Readonly<Record<string, readonly string[]>>,
  { scrapeEvery = '1s', judgeEvery = '1s', alerts = (shipped) => shipped }: Haste = {},
): Promise<Prometheus> {
  needPrometheus();
  const folder = await temporaryFolder();
  await cp(PROMETHEUS_FOLDER, folder, { recursive: true });
  const file = join(folder, 'prometheus.yml');
  await rewrite(file, (shipped) =>
    shipped
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

  async function api(path: string): Promise<unknown> {
    const { text, json } = await send(`${url}/api/v1${path}`);
    const { status, data } = json as { status: string; data: unknown };
    if (status !== 'success') throw new Error(`${path}: ${text}`);
    return data;
  }
  return {
    url,
    api,
    async query(expression) {
      return ((await api(`/query?query=${encodeURIComponent(expression)}`)) as { result: Answered[] }).result;
    },
  };
}

/** What a service goes by in the label `instance`. */
export const hostOf = (url: string): string => new URL(url).host;

async function rewrite(file: string, change: (text: string) => string): Promise<void> {
  await writeFile(file, change(await readFile(file, 'utf8')));
}
