import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { parse, parseAllDocuments } from 'yaml';
import { ROOT } from './process.ts';

/** The Kubernetes manifests of deploy/, typed as far as the tests need them. */

export interface Labels {
  readonly [name: string]: string;
}

export interface Probe {
  readonly httpGet?: { readonly path: string; readonly port: string };
  readonly periodSeconds: number;
  readonly timeoutSeconds?: number;
  readonly failureThreshold?: number;
}

interface Variable {
  readonly name: string;
  readonly value?: string;
  readonly valueFrom?: { readonly secretKeyRef: { readonly name: string; readonly key: string } };
}

export interface Container {
  readonly name: string;
  readonly image: string;
  readonly ports: readonly { readonly name: string; readonly containerPort: number }[];
  readonly env: readonly Variable[];
  readonly command?: readonly string[];
  readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string }[];
  readonly securityContext: unknown;
  readonly resources: {
    readonly requests: { readonly cpu: string; readonly memory: string };
    readonly limits: { readonly memory: string };
  };
  readonly startupProbe?: Probe;
  readonly readinessProbe: Probe;
  readonly livenessProbe: Probe;
  readonly lifecycle?: { readonly preStop: { readonly sleep: { readonly seconds: number } } };
}

interface PodSpec {
  readonly terminationGracePeriodSeconds?: number;
  readonly containers: readonly Container[];
  readonly topologySpreadConstraints?: readonly { readonly labelSelector: { readonly matchLabels: Labels } }[];
  readonly [key: string]: unknown;
}

export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly labels?: Labels };
  // biome-ignore lint/suspicious/noExplicitAny: each kind has its own type, which the Kubernetes schemas check.
  readonly spec: any;
}

interface Kustomization {
  readonly resources?: readonly string[];
  readonly configMapGenerator?: readonly { readonly name: string; readonly files: readonly string[] }[];
  readonly images?: readonly { readonly name: string; readonly newTag: string }[];
}

/** The component for clusters with the Prometheus Operator. */
export const OPERATOR_COMPONENT = 'deploy/kubernetes/components/prometheus-operator';

export const OVERLAY = 'deploy/kubernetes/overlays/self-contained';

/** The kustomization of a folder, given by its path from the project's root. */
export const readKustomization = (folder: string): Kustomization =>
  parse(readFileSync(join(ROOT, folder, 'kustomization.yaml'), 'utf8')) as Kustomization;

/** A folder and all folders that its kustomization includes. */
export function foldersOf(folder: string): string[] {
  const folders = (readKustomization(folder).resources ?? []).filter((path) => !path.endsWith('.yaml'));
  return [folder, ...folders.flatMap((path) => foldersOf(join(folder, path)))];
}

/** All manifests that a folder's kustomization includes, directly or indirectly. */
export const manifestsOf = (folder: string): Manifest[] =>
  foldersOf(folder).flatMap((one) =>
    (readKustomization(one).resources ?? [])
      .filter((path) => path.endsWith('.yaml'))
      .flatMap((path) => documentsOf(join(ROOT, one, path))),
  );

function documentsOf(file: string): Manifest[] {
  return parseAllDocuments(readFileSync(file, 'utf8'), { merge: true }).flatMap((document) => {
    if (document.errors.length > 0) throw new Error(`${file}: ${document.errors.join(' ')}`);
    const manifest = document.toJS() as Manifest | { readonly items: Manifest[] };
    return 'items' in manifest ? manifest.items : manifest;
  });
}

/** The paths of the Kubernetes files in deploy/, from the project's root. */
export const kubernetesFiles = (): string[] =>
  readdirSync(join(ROOT, 'deploy/kubernetes'), { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.yaml'))
    .map((path) => join('deploy/kubernetes', path));

/** All manifests that run pods, each with its pod template. */
export const workloadsOf = (manifests: readonly Manifest[]) =>
  manifests
    .filter(({ kind }) => ['Deployment', 'StatefulSet', 'CronJob'].includes(kind))
    .map(({ kind, metadata, spec }) => {
      const { template } = kind === 'CronJob' ? spec.jobTemplate.spec : spec;
      const { metadata: about, spec: pod } = template as { metadata: { labels: Labels }; spec: PodSpec };
      return { kind, name: metadata.name, labels: about.labels, pod };
    });

export type Workload = ReturnType<typeof workloadsOf>[number];

/** The module of a manifest's type and model in kubernetes-models. */
export const moduleOf = ({ apiVersion, kind }: Manifest): string =>
  join(dirname(`kubernetes-models/${apiVersion}/x`), kind);
