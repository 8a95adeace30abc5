import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { CHECK_WITHIN_MS, CONNECTIONS } from '../../core/store/postgres.ts';
import { BUSY } from '../bench/scale/model.ts';
import { CONFIGURATION } from '../support/haproxy.ts';
import { type Container, type Manifest, manifestsOf, OVERLAY, workloadsOf } from '../support/manifests.ts';
import { ROOT } from '../support/process.ts';

/** The figures in the manifests follow the measurements in deploy/SCALING.md. */

const SCALING = readFileSync(join(ROOT, 'deploy/SCALING.md'), 'utf8');
const manifests = manifestsOf(OVERLAY);
const containerOf = (name: string): Container =>
  workloadsOf(manifests).find((workload) => workload.name === name)?.pod.containers[0] as Container;
const scalerOf = (name: string): Manifest =>
  manifests.find(({ kind, metadata }) => kind === 'HorizontalPodAutoscaler' && metadata.name === name) as Manifest;

/** PostgreSQL's defaults. */
const MAX_CONNECTIONS = 100;
const RESERVED_CONNECTIONS = 3;

/** The numbers in a table row. */
function row(start: string): number[] {
  const line = SCALING.split('\n').find((one) => one.startsWith(`| ${start}`)) ?? '';
  const [, , ...cells] = line.split('|');
  return cells.flatMap((cell) => (/[\d,.]+/.exec(cell)?.[0] ?? '').replaceAll(',', '') || []).map(Number);
}

const [gatewayMicroseconds = 0] = row('gateway CPU per request');
const [coreMicroseconds = 0] = row('core CPU per request');
const [gatewayMegabytes = 0, coreMegabytes = 0] = row('peak, 5,000 idle connections');
const mebibytes = (text: string): number => Number(/^(\d+)Mi$/.exec(text)?.[1]);

describe.each([
  ['gateway', gatewayMegabytes],
  ['core', coreMegabytes],
] as const)('%s', (name, measured) => {
  const { requests, limits } = containerOf(name).resources;

  test('requests the highest measured memory, with a limit of twice as much', () => {
    expect(measured).toBeGreaterThan(100);
    expect(mebibytes(requests.memory)).toBeGreaterThanOrEqual(measured);
    expect(mebibytes(requests.memory)).toBeLessThan(1.25 * measured);
    expect(mebibytes(limits.memory)).toBeGreaterThanOrEqual(2 * measured);
  });

  test('requests the CPU share of the capacity model, which is also the target of the autoscaler', () => {
    const cpu = `${BUSY * 1_000}m`;
    expect(scalerOf(name).spec.metrics).toEqual([
      { type: 'Resource', resource: { name: 'cpu', target: { type: 'AverageValue', averageValue: cpu } } },
    ]);
    expect(requests.cpu).toBe(cpu);
  });
});

test('the maximum number of cores is sufficient for the maximum number of gateways', () => {
  const [gateways, cores] = [scalerOf('gateway').spec.maxReplicas, scalerOf('core').spec.maxReplicas] as [
    number,
    number,
  ];
  const perSecond = (gateways * BUSY * 1e6) / gatewayMicroseconds;
  const busyCores = (perSecond * coreMicroseconds) / 1e6 / BUSY;
  expect(busyCores).toBeGreaterThan(1);
  expect(cores).toBeGreaterThanOrEqual(Math.ceil(busyCores));
});

test('PostgreSQL has connections for the maximum number of cores and one more during a rollout', () => {
  const cores = scalerOf('core').spec.maxReplicas + 1;
  expect(cores * (CONNECTIONS + 1)).toBeLessThanOrEqual(MAX_CONNECTIONS - RESERVED_CONNECTIONS);
});

test("every probe waits at least twice as long as the core's check can take", () => {
  const seconds: number[] = ['core', 'gateway'].flatMap((name) => {
    const { startupProbe, readinessProbe, livenessProbe } = containerOf(name);
    return [startupProbe, readinessProbe, livenessProbe].map((probe) => probe?.timeoutSeconds ?? 0);
  });
  const [, haproxy = ''] = /^ *timeout check (\d+)s$/m.exec(readFileSync(CONFIGURATION, 'utf8')) ?? [];
  const dockerfile = readFileSync(join(ROOT, 'deploy/Dockerfile'), 'utf8');
  const images = [...dockerfile.matchAll(/^HEALTHCHECK .*--timeout=(\d+)s/gm)].map(([, text]) => Number(text));
  expect(images).toHaveLength(2);
  for (const one of [...seconds, Number(haproxy), ...images])
    expect(one * 1_000).toBeGreaterThanOrEqual(2 * CHECK_WITHIN_MS);
});
