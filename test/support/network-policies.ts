import type { Labels, Manifest } from './manifests.ts';

/** Evaluates NetworkPolicies (https://kubernetes.io/docs/concepts/services-networking/network-policies/). */

export interface Pod {
  readonly namespace: string;
  readonly labels: Labels;
  /** Of something that is no pod, such as a daemon of the node: no selector matches it. */
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
export function isLetThrough(manifests: readonly Manifest[], home: string, from: Pod, to: Pod, port: number): boolean {
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
    if (operator !== 'In') throw new Error(`${operator} is not known here.`);
    return values.includes(labels[key] ?? '');
  });
  return byExpression && Object.entries(matchLabels).every(([name, value]) => labels[name] === value);
}
