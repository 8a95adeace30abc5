import { json } from 'node:stream/consumers';
import { beforeAll, describe, expect, inject, test } from 'vitest';
import { type Container, runContainer } from '../support/containers/container.ts';
import { dockerOn } from '../support/containers/docker.ts';
import { buildImage, sizeOf } from '../support/containers/images.ts';
import { withoutDigest } from '../support/containers/stand-ins.ts';
import { readDockerfile } from '../support/dockerfile.ts';
import { LONGEST_STOP_MS } from '../support/drain.ts';
import { post, send } from '../support/http.ts';
import { serveHttp } from '../support/http-server.ts';
import { readAndWrite } from '../support/load.ts';
import { ADMIN_TOKEN } from '../support/stack.ts';
import { BOUNDLESS, eventually } from '../support/workers.ts';

/** A span as in OTLP's JSON (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding). */
interface Span {
  readonly service: string;
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
}

interface Attribute {
  readonly key: string;
  readonly value: { readonly stringValue?: string };
}

interface Export {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly Attribute[] };
    readonly scopeSpans: readonly { readonly spans: readonly Omit<Span, 'service'>[] }[];
  }[];
}

/** Starts a collector that accepts traces as JSON and keeps all spans. @param host the address on which it listens */
async function otlpCollector(host: string): Promise<{ url: string; spans: readonly Span[] }> {
  const spans: Span[] = [];
  const url = await serveHttp(async (request, response) => {
    const sent = await json(request);
    if (request.url === '/v1/traces') spans.push(...spansIn(sent as Export));
    response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
  }, host);
  return { url, spans };
}

const spansIn = ({ resourceSpans }: Export): Span[] =>
  resourceSpans.flatMap(({ resource, scopeSpans }) => {
    const service = resource.attributes.find(({ key }) => key === 'service.name')?.value.stringValue ?? '';
    return scopeSpans.flatMap(({ spans }) => spans.map((span) => ({ ...span, service })));
  });

/** Tests the images of deploy/Dockerfile, built and run by a container engine with the privileges from compose.yaml. */

const engine = inject('engineSocket');
const docker = dockerOn(engine);
const NETWORK = 'images';
const MOST_OVER_BASE = 120e6;
/** The time after which the Dockerfile's health check reports a container as unhealthy. */
const LATEST_START_MS = 60_000;

const say = (text: string) => void process.stdout.write(`${text}\n`);
const imageOf = (service: string) => `animal-store-${service}`;

/** Starts core and gateway, and waits until they are healthy. @param suffix of the names of images and containers */
async function startBoth(
  suffix = '',
  environment: Record<string, string> = {},
): Promise<{ core: Container; gateway: Container }> {
  const core = await runContainer(docker, {
    image: `animal-store-core${suffix}`,
    name: 'core',
    network: NETWORK,
    ports: [7001],
    environment: { OTEL_SERVICE_NAME: 'core', ...environment },
  });
  const gateway = await runContainer(docker, {
    image: `animal-store-gateway${suffix}`,
    name: 'gateway',
    network: NETWORK,
    ports: [8080, 9090],
    environment: {
      OTEL_SERVICE_NAME: 'gateway',
      CORE_URL: 'http://core:7001',
      ADMIN_HOST: '0.0.0.0',
      ADMIN_TOKEN,
      ...environment,
    },
  });
  const health = async () => [(await core.state()).Health?.Status, (await gateway.state()).Health?.Status];
  await eventually(health).toEqual(['healthy', 'healthy']);
  return { core, gateway };
}

async function issueKey(gateway: Container): Promise<string> {
  const { json } = await post(`${await gateway.url(9090)}/keys`, { name: 'test', ...BOUNDLESS }, { key: ADMIN_TOKEN });
  return (json as { key: string }).key;
}

describe.skipIf(engine === '')('images', () => {
  beforeAll(async () => {
    await docker(['network', 'create', NETWORK]);
    for (const service of ['core', 'gateway']) await buildImage(docker, service, imageOf(service));
  });

  test.for(['core', 'gateway'])('%s is at most 120 MB larger than its base', async (service) => {
    const base = withoutDigest(readDockerfile()[0]?.from ?? '');
    const over = (await sizeOf(docker, imageOf(service))) - (await sizeOf(docker, base));
    say(`${service}: ${(over / 1e6).toFixed(1)} MB over its base`);
    expect(over).toBeGreaterThan(0);
    expect(over).toBeLessThanOrEqual(MOST_OVER_BASE);
  });

  test('both images run unprivileged on a read-only file system, and exit with 0 on SIGTERM under load', async () => {
    const { core, gateway } = await startBoth();
    for (const container of [core, gateway]) {
      expect(await container.exec('id', '-u')).toBe('1000');
      await expect(container.exec('sh', '-c', 'echo > /app/file')).rejects.toThrow('Read-only file system');
      expect(await container.exec('sh', '-c', 'find /app -user 1000 -o -perm -o=w ! -type l | wc -l')).toBe('0');
      const ms = await container.startMs();
      say(`${container.name}: listens ${ms} ms after its start`);
      expect(ms).toBeLessThan(LATEST_START_MS);
    }
    const clients = await gateway.url(8080);
    expect((await send(`${clients}/docs/`)).text).toContain('<h1>Animal store API</h1>');
    const plans = await gateway.exec('node', 'gateway/operators/cli/main.ts', 'plans', 'show');
    expect(plans).toContain('enterprise');

    const load = readAndWrite(clients, await issueKey(gateway), 16);
    await eventually(() => load.outcomes.get('POST 201') ?? 0).toBeGreaterThan(100);
    for (const [container, longest] of [
      [gateway, LONGEST_STOP_MS.gateway],
      [core, LONGEST_STOP_MS.core],
    ] as const) {
      const stoppedAt = performance.now();
      await docker(['stop', '--time', String(Math.ceil(longest / 1_000)), container.name]);
      say(`${container.name}: exits ${Math.round(performance.now() - stoppedAt)} ms after SIGTERM`);
      expect(await container.state()).toMatchObject({ Status: 'exited', ExitCode: 0, OOMKilled: false });
    }
    await load.end();
    // No request is refused until the gateway stops. Afterwards, nothing listens.
    const answered = [...load.outcomes.keys()].filter((outcome) => /^(GET|POST) \d/.test(outcome));
    expect(answered.sort()).toEqual(['GET 200', 'POST 201']);
  });

  test('with OpenTelemetry preloaded, a request through gateway and core is one trace in a collector', async () => {
    const address = await docker(['network', 'inspect', '--format', '{{(index .IPAM.Config 0).Gateway}}', NETWORK]);
    const collector = await otlpCollector(address);
    for (const service of ['core', 'gateway'])
      await buildImage(docker, service, `${imageOf(service)}:traced`, 'opentelemetry.Dockerfile', 'deploy');
    const { gateway } = await startBoth(':traced', {
      OTEL_TRACES_EXPORTER: 'otlp',
      OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_BSP_SCHEDULE_DELAY: '200',
    });
    const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
    const headers = { traceparent: `00-${traceId}-00f067aa0ba902b7-01` };
    const { status } = await send(`${await gateway.url(8080)}/v1/pets`, { key: await issueKey(gateway), headers });
    expect(status).toBe(200);
    const services = () =>
      new Set(collector.spans.filter((span) => span.traceId === traceId).map(({ service }) => service));
    await eventually(() => [...services()].sort()).toEqual(['core', 'gateway']);
  });
});
