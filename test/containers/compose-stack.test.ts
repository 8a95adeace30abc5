import { readdirSync, readFileSync } from 'node:fs';
import { setPriority } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, describe, expect, inject, test, vi } from 'vitest';
import { cleanUp } from '../support/clean-up.ts';
import { isShown, logIn, rowOf, visitConsole } from '../support/console.ts';
import { type ComposeProject, composeProject } from '../support/containers/compose-up.ts';
import { containerNamed } from '../support/containers/container.ts';
import { type Docker, dockerOn } from '../support/containers/docker.ts';
import { buildImage } from '../support/containers/images.ts';
import { ctlWith } from '../support/ctl.ts';
import { send } from '../support/http.ts';
import { type EverydayLoad, type Noted, readAndWrite } from '../support/load.ts';
import { webhookReceiver } from '../support/webhook-receiver.ts';
import { eventually } from '../support/workers.ts';

/** Container faults: the container crashes, is stopped and started, or is replaced. */

/** Each function returns once the fault is over and all started containers are healthy. */
interface Mishaps {
  /** Kills the container's first process. The restart policy makes the engine restart the container. */
  crash(service: string): Promise<void>;
  stopAndStart(service: string): Promise<void>;
  replace(service: string): Promise<void>;
}

const HEALTHY_MS = 60_000;

function mishapsOf(docker: Docker, { compose, nameOf }: ComposeProject): Mishaps {
  const inspect = (service: string, format: string) => docker(['inspect', '--format', format, nameOf(service)]);
  const untilHealthy = async (service: string, startedBefore: string) => {
    const until = performance.now() + HEALTHY_MS;
    for (;;) {
      const { StartedAt, Health } = await containerNamed(docker, nameOf(service)).state();
      if (StartedAt !== startedBefore && Health?.Status === 'healthy') return;
      if (performance.now() > until) throw new Error(`${service} has not become healthy again: ${Health?.Status}.`);
    }
  };
  return {
    async crash(service) {
      const [pid, startedAt = ''] = (await inspect(service, '{{.State.Pid}} {{.State.StartedAt}}')).split(' ');
      process.kill(pidOutside(Number(pid)), 'SIGKILL');
      await untilHealthy(service, startedAt);
    },
    async stopAndStart(service) {
      const startedAt = await inspect(service, '{{.State.StartedAt}}');
      await compose('stop', service);
      await compose('start', service);
      await untilHealthy(service, startedAt);
    },
    replace: async (service) =>
      void (await compose('up', '--detach', '--no-deps', '--no-build', '--force-recreate', '--wait', service)),
  };
}

/** The id that a process in the engine has on this machine. @param inside its id in the engine's namespace */
function pidOutside(inside: number): number {
  for (const name of readdirSync('/proc').filter((entry) => /^\d+$/.test(entry))) {
    const [, , ofEngine] = /^NSpid:\t(\d+)\t(\d+)/m.exec(statusOf(name)) ?? [];
    if (Number(ofEngine) === inside) return Number(name);
  }
  throw new Error(`The engine has no process ${inside}.`);
}

function statusOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/status`, 'utf8');
  } catch {
    return '';
  }
}

/**
 * deploy/compose.yaml as shipped, without Grafana. Clients send requests through haproxy while each container in turn
 * is killed, stopped and started, and replaced.
 */

const engine = inject('engineSocket');
const docker = dockerOn(engine);
/** A loopback address that nothing else on this machine uses. */
const PUBLISH_ON = '127.0.30.80';
const CLIENTS = `http://${PUBLISH_ON}:8080`;
/** The addresses at which the compose file publishes these services. */
const ADMIN = 'http://127.0.0.1:9090';
const ALERTMANAGER = 'http://127.0.0.1:9093';
const CONNECTIONS = 8;
/** The maximum pause on a connection after a response. */
const PAUSE_MS = 40;
const OWNER = 'me';
/** The services to start, along with those they depend on. Grafana is left out, because Debian does not package it. */
const STARTED = ['haproxy', 'backup', 'prometheus', 'alertmanager'];
const SERVICES = [
  'alertmanager',
  'backup',
  'core-1',
  'core-2',
  'gateway-1',
  'gateway-2',
  'haproxy',
  'postgres',
  'prometheus',
  'redis',
];
/** Time for a scrape, an evaluation and Alertmanager's grouping of alerts on a busy machine. */
const ALERT_MS = 240_000;
const MISHAPS = ['stopAndStart', 'crash', 'replace'] as const;

const AWAY = /^(GET|POST) 50[234]$/;
const REFUSED = /^(GET|POST) (ECONNREFUSED|ECONNRESET|EPIPE|503)$/;

/** The allowed effects on clients, by service and fault. Any other fault must go unnoticed. */
const NOTICED: Readonly<Record<string, Partial<Record<keyof Mishaps, RegExp>>>> = {
  // A write whose connection was cut may have taken effect, so it is not retried. Only such writes may fail. They get a
  // 502, or a reset if haproxy closes a client connection that has already served a request.
  'gateway-1': { crash: /^POST (502|ECONNRESET)$/ },
  'gateway-2': { crash: /^POST (502|ECONNRESET)$/ },
  'core-1': { crash: /^POST 502$/ },
  'core-2': { crash: /^POST 502$/ },
  // There is only one instance.
  postgres: { crash: AWAY, stopAndStart: AWAY, replace: AWAY },
  haproxy: { crash: REFUSED, stopAndStart: REFUSED, replace: REFUSED },
};
const IN_FLIGHT_ONLY = /^(gateway|core)-/;

const say = (text: string) => void process.stdout.write(`${text}\n`);
const isFailure = ({ outcome }: Noted): boolean => outcome !== 'GET 200' && outcome !== 'POST 201';

describe.skipIf(engine === '')('the compose file', () => {
  let project: ComposeProject;
  let load: EverydayLoad;

  beforeAll(async () => {
    for (const service of ['core', 'gateway']) await buildImage(docker, service, `animal-store-${service}`);
    // The clients get the same priority as the containers' engine.
    setPriority(-10);
    project = await composeProject(engine, docker, PUBLISH_ON);
    cleanUp(() => project.compose('down', '--volumes', '--timeout', '5'));
    const startedAt = performance.now();
    await project.compose('up', '--detach', '--wait', '--no-build', ...STARTED);
    say(`up and healthy after ${((performance.now() - startedAt) / 1_000).toFixed(0)} s`);
    const key = await createKey();
    load = readAndWrite(CLIENTS, key, CONNECTIONS, PAUSE_MS);
    // Both gateways must have seen the key before the first container fails.
    await vi.waitFor(() => expect(load.requests.length).toBeGreaterThan(100), { timeout: 60_000 });
  });

  /** Runs the command from the head of compose.yaml that creates a key. */
  async function createKey(): Promise<string> {
    const command = [
      'node',
      'gateway/operators/cli/main.ts',
      'keys',
      'create',
      '--plan',
      'enterprise',
      '--name',
      OWNER,
      '--json',
    ];
    const limits = ['--minute', '1000000000', '--day', '1000000000'];
    const created = await project.compose('exec', '--no-TTY', 'gateway-1', ...command, ...limits);
    return (JSON.parse(created) as { key: string }).key;
  }

  test('Prometheus sees both gateways and both cores', async () => {
    const url = 'http://127.0.0.1:9090/api/v1/query?query=up';
    const up = async () => {
      const text = await docker(['exec', project.nameOf('prometheus'), 'wget', '-q', '-O', '-', url]);
      const { data } = JSON.parse(text) as {
        data: { result: { metric: { instance: string }; value: [number, string] }[] };
      };
      return data.result.map(({ metric, value }) => `${metric.instance} ${value[1]}`).sort();
    };
    await eventually(up).toEqual(['core-1:7001 1', 'core-2:7001 1', 'gateway-1:9090 1', 'gateway-2:9090 1']);
  });

  test('operators use ctl and console through the published port', async () => {
    const shown = await ctl('plans', 'show');
    expect(shown).toContain('enterprise');
    const { page } = await visitConsole({ adminUrl: ADMIN }, '/console/keys');
    await logIn(page, project.adminToken);
    await isShown(page);
    await rowOf(page, 'Keys', OWNER).waitFor();
  });

  test('an alert reaches the chat through Prometheus and Alertmanager, with a working link', async () => {
    const network = ['network', 'inspect', '--format', '{{(index .IPAM.Config 0).Gateway}}', 'animal-store_dashboards'];
    const chat = await webhookReceiver((response) => void response.end('ok'), await docker(network));
    project.sendAlertsTo(chat.url);
    const { id } = JSON.parse(await ctl('keys', 'create', '--plan', 'free', '--name', 'bound', '--json')) as {
      id: string;
    };
    const bounds = ['--name', 'bound', '--networks', '10.9.8.0/24', '--json'];
    const { key } = JSON.parse(await ctl('keys', 'secrets', 'add', id, ...bounds)) as { key: string };
    const alarm = async () => {
      await send(`${CLIENTS}/v1/pets`, { key });
      return chat.deliveries.map(({ body }) => body).find((body) => body.includes('GatewaySecretElsewhere')) ?? '';
    };
    await expect.poll(alarm, { timeout: ALERT_MS, interval: 1_000 }).toContain('FIRING');
    const [message] = (JSON.parse(await alarm()) as { attachments: { title_link: string }[] }).attachments;
    expect(message?.title_link).toBe(`${ADMIN}/runbook#gatewaysecretelsewhere`);
    expect((await send(`${ADMIN}/runbook`)).text).toContain(' id="gatewaysecretelsewhere"');
    const { json } = await send(`${ALERTMANAGER}/api/v2/alerts`);
    const names = (json as { labels: { alertname: string } }[]).map(({ labels }) => labels.alertname);
    expect(names).toContain('GatewaySecretElsewhere');
  });

  test.for(SERVICES)('%s faults have only the allowed effects on clients', { timeout: 300_000 }, async (service) => {
    const mishaps = mishapsOf(docker, project);
    for (const mishap of MISHAPS) {
      const from = load.requests.length;
      const startedAt = performance.now();
      await mishaps[mishap](service);
      const seconds = (performance.now() - startedAt) / 1_000;
      await settled();
      const during = load.requests.slice(from);
      const failed = during.filter(isFailure);
      say(describeMishap(service, mishap, seconds, during, failed));
      const noticed = NOTICED[service]?.[mishap];
      expect(countsOf(failed.filter(({ outcome }) => noticed?.test(outcome) !== true))).toEqual({});
      if (IN_FLIGHT_ONLY.test(service)) expect(failed.length).toBeLessThanOrEqual(CONNECTIONS);
      expect(during.length).toBeGreaterThan(failed.length);
    }
  });

  test('no acknowledged pet is lost', async () => {
    await load.end();
    const acknowledged = load.requests.flatMap(({ petId }) => (petId === undefined ? [] : [petId]));
    const list = ['psql', '-U', 'store', '-d', 'store', '-At', '-c', 'SELECT id FROM pets'];
    const kept = new Set((await docker(['exec', project.nameOf('postgres'), ...list])).split('\n').map(Number));
    say(`${load.requests.length} requests, ${acknowledged.length} pets acknowledged`);
    expect(acknowledged.filter((id) => !kept.has(id))).toEqual([]);
    expect(new Set(acknowledged).size).toBe(acknowledged.length);
  });

  /** Runs ctl on this machine, with a token as its only setting. @returns its output */
  async function ctl(...words: readonly string[]): Promise<string> {
    const { code, out, err } = await ctlWith({ ADMIN_TOKEN: project.adminToken }, ...words);
    expect([code, err]).toEqual([0, '']);
    return out;
  }

  /** Waits until no request has failed for two seconds. */
  async function settled(): Promise<void> {
    await sleep(2_000);
    await eventually(() => {
      const since = performance.now() - 2_000;
      const latest = load.requests.filter(({ endedAt }) => endedAt > since);
      return latest.length > 0 && !latest.some(isFailure);
    }).toBe(true);
  }
});

function countsOf(requests: readonly Noted[]): Record<string, number> {
  const counts = Object.groupBy(requests, ({ outcome }) => outcome);
  return Object.fromEntries(Object.entries(counts).map(([outcome, those]) => [outcome, those?.length ?? 0]));
}

/** The measurements for a row of test/promises.csv. */
function describeMishap(
  service: string,
  mishap: string,
  seconds: number,
  all: readonly Noted[],
  failed: readonly Noted[],
): string {
  const [first, last] = [failed[0], failed.at(-1)];
  const away = first && last ? `, for ${((last.endedAt - first.endedAt) / 1_000).toFixed(1)} s` : '';
  const slowest = Math.max(...all.map(({ ms }) => ms));
  const outcomes = JSON.stringify(countsOf(failed));
  return `${service} ${mishap} (${seconds.toFixed(1)} s): ${all.length} requests, ${failed.length} failed ${outcomes}${away}, slowest ${Math.round(slowest)} ms`;
}
