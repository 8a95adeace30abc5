import type { Labels, Manifest } from './manifests.ts';

/** Who may connect to whom by NetworkPolicies, as https://kubernetes.io/docs/concepts/services-networking/network-policies/ has it. */

export interface Pod {
  readonly namespace: string;
  readonly labels: Labels;
}

interface Selector {
  readonly matchLabels?: Labels;
  readonly matchExpressions?: readonly { readonly key: string; readonly operator: string; readonly values: string[] }[];
}

interface Peer {
  readonly podSelector?: Selector;
  readonly namespaceSelector?: Selector;
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
 * Whether a connection is let through: both ends must, and an end that no policy is about lets everything.
 * @param home the namespace in which the policies are
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

/** A peer without a namespace selector is of the policy's own namespace. */
function isPeer({ podSelector = {}, namespaceSelector }: Peer, home: string, pod: Pod): boolean {
  const isThere =
    namespaceSelector === undefined
      ? pod.namespace === home
      : selects(namespaceSelector, { 'kubernetes.io/metadata.name': pod.namespace });
  return isThere && selects(podSelector, pod.labels);
}

/** @throws {Error} at an operator that this does not know */
function selects({ matchLabels = {}, matchExpressions = [] }: Selector, labels: Labels): boolean {
  const byExpression = matchExpressions.every(({ key, operator, values }) => {
    if (operator !== 'In') throw new Error(`${operator} is not known here.`);
    return values.includes(labels[key] ?? '');
  });
  return byExpression && Object.entries(matchLabels).every(([name, value]) => labels[name] === value);
}
