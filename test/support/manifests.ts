import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { parse, parseAllDocuments } from 'yaml';
import { ROOT } from './process.ts';

/** The Kubernetes manifests of deploy/, with as much of their shape as the tests look at. */

export interface Labels {
  readonly [name: string]: string;
}

export interface Probe {
  readonly httpGet?: { readonly path: string; readonly port: string };
  readonly periodSeconds: number;
  readonly failureThreshold?: number;
}

export interface Variable {
  readonly name: string;
  readonly value?: string;
  readonly valueFrom?: { readonly secretKeyRef: { readonly name: string; readonly key: string } };
}

export interface Container {
  readonly name: string;
  readonly image: string;
  readonly ports: readonly { readonly name: string; readonly containerPort: number }[];
  readonly env: readonly Variable[];
  readonly securityContext: unknown;
  readonly resources: unknown;
  readonly readinessProbe: Probe;
  readonly livenessProbe: Probe;
  readonly lifecycle?: { readonly preStop: { readonly sleep: { readonly seconds: number } } };
}

export interface PodSpec {
  readonly terminationGracePeriodSeconds?: number;
  readonly containers: readonly Container[];
  readonly topologySpreadConstraints?: readonly { readonly labelSelector: { readonly matchLabels: Labels } }[];
  readonly [key: string]: unknown;
}

export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly labels?: Labels };
  // biome-ignore lint/suspicious/noExplicitAny: each kind has its own, which the Kubernetes schemas check.
  readonly spec: any;
}

export interface Kustomization {
  readonly resources?: readonly string[];
  readonly configMapGenerator?: readonly { readonly name: string; readonly files: readonly string[] }[];
  readonly images?: readonly { readonly name: string; readonly newTag: string }[];
}

export const OVERLAY = 'deploy/kubernetes/overlays/self-contained';

/** The kustomization of a folder, the folder's path from the root. */
export const readKustomization = (folder: string): Kustomization =>
  parse(readFileSync(join(ROOT, folder, 'kustomization.yaml'), 'utf8')) as Kustomization;

/** Every folder that a folder's kustomization draws on, itself first. */
export function foldersOf(folder: string): string[] {
  const folders = (readKustomization(folder).resources ?? []).filter((path) => !path.endsWith('.yaml'));
  return [folder, ...folders.flatMap((path) => foldersOf(join(folder, path)))];
}

/** All manifests that a folder's kustomization names, and those that these draw on. */
export const manifestsOf = (folder: string): Manifest[] =>
  foldersOf(folder).flatMap((one) =>
    (readKustomization(one).resources ?? [])
      .filter((path) => path.endsWith('.yaml'))
      .flatMap((path) => documentsOf(join(ROOT, one, path))),
  );

function documentsOf(file: string): Manifest[] {
  return parseAllDocuments(readFileSync(file, 'utf8')).map((document) => {
    if (document.errors.length > 0) throw new Error(`${file}: ${document.errors.join(' ')}`);
    return document.toJS() as Manifest;
  });
}

/** YAML files of deploy/ that are meant for Kubernetes, from the root. */
export const kubernetesFiles = (): string[] =>
  readdirSync(join(ROOT, 'deploy/kubernetes'), { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.yaml'))
    .map((path) => join('deploy/kubernetes', path));

/** What runs pods, each with its template. */
export const workloadsOf = (manifests: readonly Manifest[]): { name: string; labels: Labels; pod: PodSpec }[] =>
  manifests
    .filter(({ kind }) => kind === 'Deployment' || kind === 'StatefulSet')
    .map(({ metadata, spec }) => ({
      name: metadata.name,
      labels: spec.template.metadata.labels as Labels,
      pod: spec.template.spec as PodSpec,
    }));

/** Where a manifest's type and model are in kubernetes-models. */
export const moduleOf = ({ apiVersion, kind }: Manifest): string =>
  join(dirname(`kubernetes-models/${apiVersion}/x`), kind);
