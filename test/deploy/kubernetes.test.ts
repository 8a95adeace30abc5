import { existsSync } from 'node:fs';
import { symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { readCoreSettings } from '../../core/config.ts';
import { readGatewaySettings } from '../../gateway/config.ts';
import packageJson from '../../package.json' with { type: 'json' };
import { freshSecrets } from '../support/compose.ts';
import { imageSettings, readDockerfile } from '../support/dockerfile.ts';
import { LONGEST_STOP_MS } from '../support/drain.ts';
import {
  type Container,
  foldersOf,
  kubernetesFiles,
  type Labels,
  type Manifest,
  manifestsOf,
  moduleOf,
  OVERLAY,
  type Probe,
  readKustomization,
  workloadsOf,
} from '../support/manifests.ts';
import { ROOT, startProcess } from '../support/process.ts';
import { temporaryFolder } from '../support/stack.ts';

const manifests = manifestsOf(OVERLAY);
const workloads = workloadsOf(manifests);
const ofKind = (kind: string) => manifests.filter((manifest) => manifest.kind === kind);
const secrets = freshSecrets();

/** What the compiler says of manifests as values of the API's types: unlike the schemas, it knows of no field too many. */
async function typeFaults(given: readonly Manifest[]): Promise<string> {
  const folder = await temporaryFolder();
  const lines = given.map((manifest) => {
    const type = `import('${moduleOf(manifest)}').I${manifest.kind}`;
    return `export const manifest${lineNumber()}: ${type} = ${JSON.stringify(manifest)};`;
  });
  await writeFile(join(folder, 'manifests.ts'), lines.join('\n'));
  await writeFile(join(folder, 'package.json'), '{"type":"module"}');
  await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  const flags = ['--noEmit', '--strict', '--skipLibCheck', '--module', 'nodenext', '--types', ''];
  const tsc = join(ROOT, 'node_modules/typescript/bin/tsc');
  const { code, out } = await startProcess(process.execPath, [tsc, ...flags, 'manifests.ts'], {}, { cwd: folder })
    .ended;
  return code === 0 ? '' : out;
}

let lines = 0;
const lineNumber = () => (lines += 1);

/** The same manifest with one field's name misspelled, wherever it stands. */
const misspelled = (manifest: Manifest, from: string, to: string): Manifest =>
  JSON.parse(JSON.stringify(manifest).replace(`"${from}"`, `"${to}"`)) as Manifest;

test('manifests are as the schemas of Kubernetes have them', async () => {
  for (const manifest of manifests) {
    const { [manifest.kind]: Model } = await import(moduleOf(manifest));
    expect(() => new Model(manifest).validate(), manifest.metadata.name).not.toThrow();
    expect(() => new Model({ ...manifest, spec: 'x', metadata: 'x' }).validate()).toThrow();
  }
});

test('and have no field that Kubernetes does not know', async () => {
  expect(await typeFaults(manifests)).toBe('');
  const [gateway] = ofKind('Deployment').filter(({ metadata }) => metadata.name === 'gateway') as [Manifest];
  const bad = misspelled(gateway, 'readOnlyRootFilesystem', 'readOnlyRootFileSystem');
  expect(await typeFaults([bad])).toMatch(/readOnlyRootFileSystem.* does not exist/);
}, 60_000);

test('kustomizations name files that are there, and every manifest is named', () => {
  const folders = foldersOf(OVERLAY);
  const named = folders.flatMap((folder) => {
    const { resources = [], configMapGenerator = [] } = readKustomization(folder);
    const files = [...resources, ...configMapGenerator.flatMap(({ files }) => files)];
    return ['kustomization.yaml', ...files].map((path) => join(folder, path));
  });
  expect(named.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  expect(kubernetesFiles().filter((path) => !named.includes(path))).toEqual([]);
});

test('images of ours are tagged with the version of the project, others with one that stays the same', () => {
  const ours = new Map(readKustomization(OVERLAY).images?.map(({ name, newTag }) => [name, newTag]));
  for (const { image } of workloads.flatMap(({ pod }) => pod.containers)) {
    if (image.startsWith('animal-store-')) expect(ours.get(image)).toBe(packageJson.version);
    else expect(image).toMatch(/:\d+(\.\d+)*-alpine$/);
  }
});

test('volumes that come from a ConfigMap find it', () => {
  const generated = foldersOf(OVERLAY).flatMap((folder) => readKustomization(folder).configMapGenerator ?? []);
  const wanted = workloads
    .flatMap(({ pod }) => (pod.volumes ?? []) as { configMap?: { name: string } }[])
    .flatMap(({ configMap }) => configMap?.name ?? []);
  expect(wanted).toEqual(generated.map(({ name }) => name));
});

describe.each(workloads)('$name', ({ name, labels, pod }) => {
  const [container] = pod.containers as [Container];

  test('runs as nobody in particular, with no right, on a root file system that is read-only', () => {
    expect(pod).toMatchObject({
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
    });
    expect(pod.containers).toHaveLength(1);
    expect(container.securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    });
    expect(container.resources).toMatchObject({
      requests: { cpu: expect.any(String), memory: expect.any(String) },
      limits: { memory: expect.any(String) },
    });
    expect(JSON.stringify(pod)).not.toMatch(/"(hostNetwork|hostPID|hostPath|privileged)"/);
  });

  test('takes secrets that the example file names, and builds on what stands above only', () => {
    const above: string[] = [];
    for (const { name: variable, value = '', valueFrom } of container.env) {
      if (valueFrom !== undefined) {
        expect(valueFrom.secretKeyRef.name).toBe('animal-store');
        expect(Object.keys(secrets)).toContain(valueFrom.secretKeyRef.key);
      }
      for (const [, used] of value.matchAll(/\$\((\w+)\)/g)) expect(above).toContain(used);
      above.push(variable);
    }
  });

  test('is what a Service of its name leads to, on ports that it has', () => {
    const [service] = ofKind('Service').filter(({ metadata }) => metadata.name === name) as [Manifest];
    expect(labels).toMatchObject(service.spec.selector);
    const ports = container.ports.map((port) => port.name);
    for (const { targetPort } of service.spec.ports) expect(ports).toContain(targetPort);
  });
});

/** A container's environment as the kubelet makes it: secrets in, $(NAME) replaced. */
function environmentOf({ env }: Container): Record<string, string> {
  const environment: Record<string, string> = {};
  for (const { name, value = '', valueFrom } of env)
    environment[name] = valueFrom
      ? (secrets[valueFrom.secretKeyRef.key] ?? '')
      : value.replaceAll(/\$\((\w+)\)/g, (_, used: string) => environment[used] ?? '');
  return environment;
}

/** Variables that are there for others to build on. */
const buildingBlocks = ({ env }: Container): string[] =>
  env.flatMap(({ value = '' }) => [...value.matchAll(/\$\((\w+)\)/g)].map(([, used = '']) => used));

describe.each([
  ['core', readCoreSettings],
  ['gateway', readGatewaySettings],
] as const)('%s', (name, readSettings) => {
  const [{ labels, pod }] = workloads.filter((workload) => workload.name === name) as [(typeof workloads)[number]];
  const [container] = pod.containers as [Container];
  const image = imageSettings(readDockerfile(), name);
  const environment = { ...image.environment, ...environmentOf(container) };
  const settings: Record<string, unknown> = readSettings(environment);

  test('all that its environment sets is a setting, with a value that is taken', () => {
    const blocks = buildingBlocks(container);
    for (const setting of Object.keys(environment))
      if (!blocks.includes(setting)) expect(settings).toHaveProperty(setting);
    const ports = Object.fromEntries(container.ports.map((port) => [port.name, port.containerPort]));
    expect(ports).toEqual({ http: settings.PORT, ...(name === 'gateway' && { admin: settings.ADMIN_PORT }) });
  });

  test('probes ask whether it is ready and whether it lives, where it answers that', () => {
    const port = name === 'gateway' ? 'admin' : 'http';
    const { readinessProbe, livenessProbe } = container;
    expect(readinessProbe.httpGet).toEqual({ path: '/readyz', port });
    expect(livenessProbe.httpGet).toEqual({ path: '/livez', port });
  });

  test('its time to end holds the wait before SIGTERM and the longest stop after it', () => {
    const wait = container.lifecycle?.preStop.sleep.seconds ?? 0;
    const { periodSeconds, failureThreshold = 3 }: Probe = container.readinessProbe;
    expect(wait).toBeGreaterThanOrEqual(2 * periodSeconds * failureThreshold);
    const sum = wait + LONGEST_STOP_MS[name] / 1_000;
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThanOrEqual(sum + 5);
  });

  test('never falls below two, spreads, and is scaled and disrupted with care', () => {
    const isOwn = ({ metadata }: Manifest) => metadata.name === name;
    const [deployment, scaler, budget] = ['Deployment', 'HorizontalPodAutoscaler', 'PodDisruptionBudget'].map((kind) =>
      ofKind(kind).find(isOwn),
    );
    expect(deployment?.spec.replicas).toBe(undefined);
    expect(deployment?.spec.strategy.rollingUpdate.maxUnavailable).toBe(0);
    expect(scaler?.spec.scaleTargetRef).toEqual({ apiVersion: 'apps/v1', kind: 'Deployment', name });
    expect(scaler?.spec.minReplicas).toBeGreaterThanOrEqual(2);
    expect(budget?.spec.maxUnavailable).toBe(1);
    const selectors: Labels[] = [budget?.spec.selector.matchLabels, deployment?.spec.selector.matchLabels];
    const spread = pod.topologySpreadConstraints?.map(({ labelSelector }) => labelSelector.matchLabels) ?? [];
    expect(spread).toHaveLength(2);
    for (const selector of [...selectors, ...spread]) expect(labels).toMatchObject(selector);
  });
});
