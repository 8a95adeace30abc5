import { expect, test } from 'vitest';
import { manifestsOf, OVERLAY, workloadsOf } from '../support/manifests.ts';
import { isLetThrough, type Pod } from '../support/network-policies.ts';

const HOME = 'animal-store';
const manifests = manifestsOf(OVERLAY);
const named = (namespace: string, name: string): Pod => ({ namespace, labels: { 'app.kubernetes.io/name': name } });

/** Everyone, by name: our pods, those who are let in, and those who look like them from somewhere else. */
const PODS: Readonly<Record<string, Pod>> = {
  ...Object.fromEntries(workloadsOf(manifests).map(({ name, labels }) => [name, { namespace: HOME, labels }])),
  ingress: named('ingress-nginx', 'ingress-nginx'),
  prometheus: named('monitoring', 'prometheus'),
  grafana: named('monitoring', 'grafana'),
  'order-desk': named('internal', 'order-desk'),
  warehouse: named('internal', 'warehouse'),
  'another internal service': named('internal', 'newsletter'),
  'an order-desk elsewhere': named('default', 'order-desk'),
  'a gateway elsewhere': named('default', 'gateway'),
  'a prometheus here': named(HOME, 'prometheus'),
  'another pod here': { namespace: HOME, labels: {} },
};
const PORTS = [7001, 8080, 9090, 6379, 5432, 22, 443];

test('pods are reached by those who need them, where they need them, and by nobody else', () => {
  const ours = [...workloadsOf(manifests).map(({ name }) => name), 'another pod here'];
  const reached = ours.map((target) => [
    target,
    Object.keys(PODS).flatMap((name) =>
      PORTS.filter((port) => isLetThrough(manifests, HOME, PODS[name] as Pod, PODS[target] as Pod, port)).map(
        (port) => `${name} ${port}`,
      ),
    ),
  ]);
  expect(Object.fromEntries(reached)).toEqual({
    gateway: ['ingress 8080', 'prometheus 9090'],
    core: ['gateway 7001', 'prometheus 7001', 'order-desk 7001', 'warehouse 7001'],
    redis: ['gateway 6379'],
    postgres: ['core 5432'],
    'another pod here': [],
  });
});

test('and reach nobody outside but for the names of others', () => {
  const dns = { namespace: 'kube-system', labels: { 'k8s-app': 'kube-dns' } };
  const world = { namespace: 'anywhere', labels: {} };
  for (const name of ['gateway', 'core', 'redis', 'postgres', 'another pod here']) {
    const pod = PODS[name] as Pod;
    expect([53, 443].filter((port) => isLetThrough(manifests, HOME, pod, dns, port))).toEqual([53]);
    expect([53, 443].filter((port) => isLetThrough(manifests, HOME, pod, world, port))).toEqual([]);
  }
});
