import { expect, test } from 'vitest';
import { type Labels, type Manifest, manifestsOf, OVERLAY, workloadsOf } from '../support/manifests.ts';

/** Evaluates NetworkPolicies (https://kubernetes.io/docs/concepts/services-networking/network-policies/). */

interface Pod {
  readonly namespace: string;
  readonly labels: Labels;
  /** For something that is not a pod, such as a daemon on the node. No selector matches it. */
  readonly address?: string;
}

interface Selector {
  readonly matchLabels?: Labels;
  readonly matchExpressions?: readonly { readonly key: string; readonly operator: string; readonly values: string[] }[];
}

interface Peer {
  readonly podSelector?: Selector;
  readonly namespaceSelector?: Selector;
  readonly ipBlock?: { readonly cidr: string };
}

interface Rule {
  readonly from?: readonly Peer[];
  readonly to?: readonly Peer[];
  readonly ports?: readonly { readonly port: number }[];
}

interface Policy {
  readonly podSelector: Selector;
  readonly policyTypes: readonly ('Ingress' | 'Egress')[];
  readonly ingress?: readonly Rule[];
  readonly egress?: readonly Rule[];
}

/**
 * Whether a connection is allowed. Both ends must allow it; an end without a policy allows everything.
 * @param home the namespace of the policies
 */
function isLetThrough(manifests: readonly Manifest[], home: string, from: Pod, to: Pod, port: number): boolean {
  const policies = manifests.filter(({ kind }) => kind === 'NetworkPolicy').map(({ spec }) => spec as Policy);
  const about = (pod: Pod, type: 'Ingress' | 'Egress') =>
    policies.filter(
      ({ podSelector, policyTypes }) =>
        pod.namespace === home && policyTypes.includes(type) && selects(podSelector, pod.labels),
    );
  const allows = ({ from: sources, to: targets, ports }: Rule, other: Pod) =>
    (ports?.some((one) => one.port === port) ?? true) &&
    ((sources ?? targets)?.some((peer) => isPeer(peer, home, other)) ?? true);
  const [leaving, arriving] = [about(from, 'Egress'), about(to, 'Ingress')];
  return (
    (leaving.length === 0 || leaving.some(({ egress = [] }) => egress.some((rule) => allows(rule, to)))) &&
    (arriving.length === 0 || arriving.some(({ ingress = [] }) => ingress.some((rule) => allows(rule, from))))
  );
}

/** A peer without a namespace selector is in the policy's own namespace. Blocks are single addresses here. */
function isPeer({ podSelector = {}, namespaceSelector, ipBlock }: Peer, home: string, pod: Pod): boolean {
  if (ipBlock !== undefined || pod.address !== undefined) return ipBlock?.cidr === `${pod.address}/32`;
  const isThere =
    namespaceSelector === undefined
      ? pod.namespace === home
      : selects(namespaceSelector, { 'kubernetes.io/metadata.name': pod.namespace });
  return isThere && selects(podSelector, pod.labels);
}

/** @throws {Error} for an unsupported operator */
function selects({ matchLabels = {}, matchExpressions = [] }: Selector, labels: Labels): boolean {
  const byExpression = matchExpressions.every(({ key, operator, values }) => {
    if (operator !== 'In') throw new Error(`${operator} is not supported here.`);
    return values.includes(labels[key] ?? '');
  });
  return byExpression && Object.entries(matchLabels).every(([name, value]) => labels[name] === value);
}

const HOME = 'animal-store';
const manifests = manifestsOf(OVERLAY);
const named = (namespace: string, name: string): Pod => ({ namespace, labels: { 'app.kubernetes.io/name': name } });

/** All pods by name: ours, those that are allowed in, and those from elsewhere with the same labels. */
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
  'a backup elsewhere': named('default', 'backup'),
  'a prometheus here': named(HOME, 'prometheus'),
  'another pod here': { namespace: HOME, labels: {} },
};
const PORTS = [7001, 8080, 9090, 6379, 5432, 22, 443];

test('pods are reachable only from those that need them, at the ports they need', () => {
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
    gateway: ['backup 9090', 'restore 9090', 'ingress 8080', 'prometheus 9090'],
    core: ['gateway 7001', 'prometheus 7001', 'order-desk 7001', 'warehouse 7001'],
    redis: ['gateway 6379'],
    postgres: ['core 5432'],
    backup: [],
    restore: [],
    'another pod here': [],
  });
});

test('pods reach nothing outside the namespace except cluster and node DNS', () => {
  const dns = { namespace: 'kube-system', labels: { 'k8s-app': 'kube-dns' } };
  const cacheOfNode = { namespace: '', labels: {}, address: '169.254.20.10' };
  const metadataOfCloud = { ...cacheOfNode, address: '169.254.169.254' };
  const world = { namespace: 'anywhere', labels: {} };
  for (const name of ['gateway', 'core', 'redis', 'postgres', 'backup', 'another pod here']) {
    const pod = PODS[name] as Pod;
    expect([53, 443].filter((port) => isLetThrough(manifests, HOME, pod, dns, port))).toEqual([53]);
    expect([53, 80].filter((port) => isLetThrough(manifests, HOME, pod, cacheOfNode, port))).toEqual([53]);
    for (const other of [world, metadataOfCloud])
      expect([53, 80, 443].filter((port) => isLetThrough(manifests, HOME, pod, other, port))).toEqual([]);
  }
});
