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
  OPERATOR_COMPONENT,
  OVERLAY,
  type Probe,
  readKustomization,
  type Workload,
  workloadsOf,
} from '../support/manifests.ts';
import { ROOT, startProcess } from '../support/process.ts';
import { temporaryFolder } from '../support/stack.ts';

const manifests = manifestsOf(OVERLAY);
const workloads = workloadsOf(manifests);
const ofKind = (kind: string) => manifests.filter((manifest) => manifest.kind === kind);
const secrets = freshSecrets();

/** The compiler's errors for manifests as values of the API's types. Unlike the schemas, it reports unknown fields. */
async function typeFaults(given: readonly Manifest[]): Promise<string> {
  const folder = await temporaryFolder();
  const lines = given.map((manifest) => {
    const type = `import('${moduleOf(manifest)}').I${manifest.kind}`;
    return `export const manifest${lineNumber()}: ${type} = ${JSON.stringify(manifest)};`;
  });
  await writeFile(join(folder, 'manifests.ts'), lines.join('\n'));
  await writeFile(join(folder, 'package.json'), '{"type":"module"}');
  await symlink(join(ROOT, 'test/node_modules'), join(folder, 'node_modules'));
  const flags = ['--noEmit', '--strict', '--skipLibCheck', '--module', 'nodenext', '--types', ''];
  const tsc = join(ROOT, 'test/node_modules/typescript/bin/tsc');
  const { code, out } = await startProcess(process.execPath, [tsc, ...flags, 'manifests.ts'], {}, { cwd: folder })
    .ended;
  return code === 0 ? '' : out;
}

let lines = 0;
const lineNumber = () => (lines += 1);

/** The same manifest with the name of one field misspelled everywhere. */
const misspelled = (manifest: Manifest, from: string, to: string): Manifest =>
  JSON.parse(JSON.stringify(manifest).replace(`"${from}"`, `"${to}"`)) as Manifest;

test('manifests conform to the Kubernetes schemas', async () => {
  for (const manifest of manifests) {
    const { [manifest.kind]: Model } = await import(moduleOf(manifest));
    expect(() => new Model(manifest).validate(), manifest.metadata.name).not.toThrow();
    expect(() => new Model({ ...manifest, spec: 'x', metadata: 'x' }).validate()).toThrow();
  }
});

test('manifests have no unknown fields', async () => {
  expect(await typeFaults(manifests)).toBe('');
  const [gateway] = ofKind('Deployment').filter(({ metadata }) => metadata.name === 'gateway') as [Manifest];
  const bad = misspelled(gateway, 'readOnlyRootFilesystem', 'readOnlyRootFileSystem');
  expect(await typeFaults([bad])).toMatch(/readOnlyRootFileSystem.* does not exist/);
}, 60_000);

test('kustomizations name every manifest and only existing files', () => {
  const folders = [...foldersOf(OVERLAY), OPERATOR_COMPONENT];
  const named = folders.flatMap((folder) => {
    const { resources = [], configMapGenerator = [] } = readKustomization(folder);
    const files = [...resources, ...configMapGenerator.flatMap(({ files }) => files)];
    return ['kustomization.yaml', ...files].map((path) => join(folder, path));
  });
  expect(named.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  expect(kubernetesFiles().filter((path) => !named.includes(path))).toEqual([]);
});

test("our images are tagged with the project's version, others with a fixed one", () => {
  const ours = new Map(readKustomization(OVERLAY).images?.map(({ name, newTag }) => [name, newTag]));
  for (const { image } of workloads.flatMap(({ pod }) => pod.containers)) {
    if (image.startsWith('animal-store-')) expect(ours.get(image)).toBe(packageJson.version);
    else expect(image).toMatch(/:\d+(\.\d+)*-alpine$/);
  }
});

test('every ConfigMap used by a volume exists', () => {
  const generated = foldersOf(OVERLAY).flatMap((folder) => readKustomization(folder).configMapGenerator ?? []);
  const wanted = workloads
    .flatMap(({ pod }) => (pod.volumes ?? []) as { configMap?: { name: string } }[])
    .flatMap(({ configMap }) => configMap?.name ?? []);
  expect([...new Set(wanted)].sort()).toEqual(generated.map(({ name }) => name).sort());
});

describe.each(workloads)('$name', ({ pod }) => {
  const [container] = pod.containers as [Container];

  test('runs as an unprivileged user on a read-only root file system', () => {
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

  test('uses only secrets from the example file, and refers only to variables defined before', () => {
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
});

test.each(workloads.filter(({ kind }) => kind !== 'CronJob'))(
  '$name is selected by the Service with its name, on ports that the pod has',
  ({ name, labels, pod }) => {
    const [service] = ofKind('Service').filter(({ metadata }) => metadata.name === name) as [Manifest];
    expect(labels).toMatchObject(service.spec.selector);
    const ports = pod.containers[0]?.ports.map((port) => port.name);
    for (const { targetPort } of service.spec.ports) expect(ports).toContain(targetPort);
  },
);

describe('the backup and restore jobs', () => {
  const jobs = workloads.filter(({ kind }) => kind === 'CronJob');
  const ofJob = (wanted: string) => ofKind('CronJob').find(({ metadata }) => metadata.name === wanted) as Manifest;

  test('run the script from their ConfigMap, on one volume, one at a time', () => {
    expect(jobs.map(({ name }) => name)).toEqual(['backup', 'restore']);
    for (const { name, pod } of jobs) {
      const [{ command, volumeMounts = [] }] = pod.containers as [Container];
      expect(command?.slice(0, 4)).toEqual(['sh', '/etc/backup/backup.sh', '/backups', '14']);
      expect(command?.slice(4)).toEqual(name === 'restore' ? ['restore'] : []);
      expect(volumeMounts.map(({ mountPath }) => mountPath)).toEqual(['/etc/backup', '/backups']);
      expect(pod.volumes).toContainEqual({ name: 'backups', persistentVolumeClaim: { claimName: 'backups' } });
      expect(pod).toMatchObject({ restartPolicy: 'Never', securityContext: { fsGroup: 1_000 } });
      expect(ofJob(name).spec.concurrencyPolicy).toBe('Forbid');
    }
    expect(ofKind('PersistentVolumeClaim').map(({ metadata }) => metadata.name)).toContain('backups');
    expect(existsSync(join(ROOT, 'deploy/backup/backup.sh'))).toBe(true);
    expect(ofJob('backup').spec.suspend).toBe(undefined);
    expect(ofJob('restore').spec.suspend).toBe(true);
  });

  test('find a gateway through the Service of its admin listener', () => {
    const [service] = ofKind('Service').filter(({ metadata }) => metadata.name === 'gateway-admin') as [Manifest];
    const [gateway] = workloads.filter(({ name }) => name === 'gateway') as [Workload];
    const [{ ports }] = gateway.pod.containers as [Container];
    expect(gateway.labels).toMatchObject(service.spec.selector);
    expect(service.spec.ports).toEqual([{ name: 'admin', port: 9_090, targetPort: 'admin' }]);
    expect(ports.find((port) => port.name === 'admin')?.containerPort).toBe(9_090);
    for (const { pod } of jobs) {
      const { ADMIN_HOST, ...others } = environmentOf(pod.containers[0] as Container);
      expect([ADMIN_HOST, Object.keys(others)]).toEqual(['gateway-admin', ['ADMIN_TOKEN']]);
    }
  });
});

/** A container's environment as the kubelet creates it: secrets inserted, $(NAME) replaced. */
function environmentOf({ env }: Container): Record<string, string> {
  const environment: Record<string, string> = {};
  for (const { name, value = '', valueFrom } of env)
    environment[name] = valueFrom
      ? (secrets[valueFrom.secretKeyRef.key] ?? '')
      : value.replaceAll(/\$\((\w+)\)/g, (_, used: string) => environment[used] ?? '');
  return environment;
}

/** Variables that others refer to. */
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

  test('its environment contains only known settings with valid values', () => {
    const blocks = buildingBlocks(container);
    for (const setting of Object.keys(environment))
      if (!blocks.includes(setting)) expect(settings).toHaveProperty(setting);
    const ports = Object.fromEntries(container.ports.map((port) => [port.name, port.containerPort]));
    expect(ports).toEqual({ http: settings.PORT, ...(name === 'gateway' && { admin: settings.ADMIN_PORT }) });
  });

  test('probes check readiness and liveness at the right ports', () => {
    const port = name === 'gateway' ? 'admin' : 'http';
    const { readinessProbe, livenessProbe } = container;
    expect(readinessProbe.httpGet).toEqual({ path: '/readyz', port });
    expect(livenessProbe.httpGet).toEqual({ path: '/livez', port });
  });

  test('its grace period covers the wait before SIGTERM and the longest stop after it', () => {
    const wait = container.lifecycle?.preStop.sleep.seconds ?? 0;
    const { periodSeconds, failureThreshold = 3 }: Probe = container.readinessProbe;
    expect(wait).toBeGreaterThanOrEqual(2 * periodSeconds * failureThreshold);
    const sum = wait + LONGEST_STOP_MS[name] / 1_000;
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThanOrEqual(sum + 5);
  });

  test('never has fewer than two pods, spreads them, and scales and disrupts them gradually', () => {
    const own = (kind: string) => ofKind(kind).find(({ metadata }) => metadata.name === name);
    const [deployment, scaler, budget] = [
      own('Deployment'),
      own('HorizontalPodAutoscaler'),
      own('PodDisruptionBudget'),
    ];
    expect(deployment?.spec.replicas).toBe(undefined);
    expect(deployment?.spec.strategy.rollingUpdate.maxUnavailable).toBe(0);
    expect(scaler?.spec.scaleTargetRef).toEqual({ apiVersion: 'apps/v1', kind: 'Deployment', name });
    expect(scaler?.spec.minReplicas).toBeGreaterThanOrEqual(2);
    expect(budget?.spec.maxUnavailable).toBe(1);
    const spread = pod.topologySpreadConstraints?.map(({ labelSelector }) => labelSelector.matchLabels) ?? [];
    expect(spread).toHaveLength(2);
    const selectors: Labels[] = [budget, deployment].map((one) => one?.spec.selector.matchLabels);
    for (const selector of [...selectors, ...spread]) expect(labels).toMatchObject(selector);
  });
});
