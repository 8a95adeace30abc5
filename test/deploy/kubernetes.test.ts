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
const named = (kind: string, name: string) =>
  manifests.find((manifest) => manifest.kind === kind && manifest.metadata.name === name) as Manifest;
const workloadOf = (name: string) => workloads.find((workload) => workload.name === name) as Workload;
const containerOf = ({ pod }: Pick<Workload, 'pod'>) => pod.containers[0] as Container;
const secrets = freshSecrets();

/** The compiler's errors for manifests as values of the API's types. Unlike the schemas, it reports unknown fields. */
async function typeFaults(given: readonly Manifest[]): Promise<string> {
  const folder = await temporaryFolder();
  const lines = given.map((manifest, at) => {
    const type = `import('${moduleOf(manifest)}').I${manifest.kind}`;
    return `export const manifest${at}: ${type} = ${JSON.stringify(manifest)};`;
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

test('manifests conform to the Kubernetes schemas', async () => {
  for (const manifest of manifests) {
    const { [manifest.kind]: Model } = await import(moduleOf(manifest));
    expect(() => new Model(manifest).validate(), manifest.metadata.name).not.toThrow();
    expect(() => new Model({ ...manifest, spec: 'x', metadata: 'x' }).validate()).toThrow();
  }
});

test('manifests have no unknown fields', async () => {
  expect(await typeFaults(manifests)).toBe('');
  const gateway = JSON.stringify(named('Deployment', 'gateway'));
  const misspelled = JSON.parse(gateway.replace('"readOnlyRootFilesystem"', '"readOnlyRootFileSystem"'));
  expect(await typeFaults([misspelled])).toMatch(/readOnlyRootFileSystem.* does not exist/);
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
  const container = containerOf({ pod });

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
    const service = named('Service', name);
    expect(labels).toMatchObject(service.spec.selector);
    const ports = pod.containers[0]?.ports.map((port) => port.name);
    for (const { targetPort } of service.spec.ports) expect(ports).toContain(targetPort);
  },
);

test('gateways find every ready core: their CORE_URL names a headless Service', () => {
  const { hostname, port } = new URL(environmentOf(containerOf(workloadOf('gateway'))).CORE_URL ?? '');
  const service = named('Service', hostname);
  expect(service.spec).toMatchObject({ clusterIP: 'None', publishNotReadyAddresses: false });
  const core = workloadOf('core');
  expect(core.labels).toMatchObject(service.spec.selector);
  // A headless Service cannot map ports.
  expect(containerOf(core).ports.map(({ containerPort }) => String(containerPort))).toContain(port);
});

describe('the backup and restore jobs', () => {
  const jobs = workloads.filter(({ kind }) => kind === 'CronJob');

  test('run the script from their ConfigMap, on one volume, one at a time', () => {
    expect(jobs.map(({ name }) => name)).toEqual(['backup', 'restore']);
    for (const { name, pod } of jobs) {
      const { command, volumeMounts = [] } = containerOf({ pod });
      expect(command?.slice(0, 4)).toEqual(['sh', '/etc/backup/backup.sh', '/backups', '14']);
      expect(command?.slice(4)).toEqual(name === 'restore' ? ['restore'] : []);
      expect(volumeMounts.map(({ mountPath }) => mountPath)).toEqual(['/etc/backup', '/backups']);
      expect(pod.volumes).toContainEqual({ name: 'backups', persistentVolumeClaim: { claimName: 'backups' } });
      expect(pod).toMatchObject({ restartPolicy: 'Never', securityContext: { fsGroup: 1_000 } });
      expect(named('CronJob', name).spec.concurrencyPolicy).toBe('Forbid');
    }
    expect(named('PersistentVolumeClaim', 'backups')).toBeDefined();
    expect(existsSync(join(ROOT, 'deploy/backup/backup.sh'))).toBe(true);
    expect(named('CronJob', 'backup').spec.suspend).toBe(undefined);
    expect(named('CronJob', 'restore').spec.suspend).toBe(true);
  });

  test('find a gateway through the Service of its admin listener', () => {
    const service = named('Service', 'gateway-admin');
    const gateway = workloadOf('gateway');
    expect(gateway.labels).toMatchObject(service.spec.selector);
    expect(service.spec.ports).toEqual([{ name: 'admin', port: 9_090, targetPort: 'admin' }]);
    expect(containerOf(gateway).ports).toContainEqual({ name: 'admin', containerPort: 9_090 });
    for (const { pod } of jobs) {
      const { ADMIN_HOST, ...others } = environmentOf(containerOf({ pod }));
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

describe.each([
  ['core', readCoreSettings],
  ['gateway', readGatewaySettings],
] as const)('%s', (name, readSettings) => {
  const { labels, pod } = workloadOf(name);
  const container = containerOf({ pod });
  const image = imageSettings(readDockerfile(), name);
  const environment = { ...image.environment, ...environmentOf(container) };
  const settings: Record<string, unknown> = readSettings(environment);

  test('its environment contains only known settings with valid values', () => {
    // Variables that others refer to.
    const blocks = container.env.flatMap(({ value = '' }) =>
      [...value.matchAll(/\$\((\w+)\)/g)].map(([, used]) => used),
    );
    for (const setting of Object.keys(environment))
      if (!blocks.includes(setting)) expect(settings).toHaveProperty(setting);
    const ports = Object.fromEntries(container.ports.map((port) => [port.name, port.containerPort]));
    expect(ports).toEqual({ http: settings.PORT, ...(name === 'gateway' && { admin: settings.ADMIN_PORT }) });
  });

  test('its readiness and liveness probes request the right paths at the right port', () => {
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
    const [deployment, budget] = [named('Deployment', name).spec, named('PodDisruptionBudget', name).spec];
    const scaler = named('HorizontalPodAutoscaler', name).spec;
    expect(deployment.replicas).toBe(undefined);
    expect(deployment.strategy.rollingUpdate.maxUnavailable).toBe(0);
    expect(scaler.scaleTargetRef).toEqual({ apiVersion: 'apps/v1', kind: 'Deployment', name });
    expect(scaler.minReplicas).toBeGreaterThanOrEqual(2);
    expect(budget.maxUnavailable).toBe(1);
    const spread = pod.topologySpreadConstraints?.map(({ labelSelector }) => labelSelector.matchLabels) ?? [];
    expect(spread).toHaveLength(2);
    const selectors: Labels[] = [budget, deployment].map(({ selector }) => selector.matchLabels);
    for (const selector of [...selectors, ...spread]) expect(labels).toMatchObject(selector);
  });
});
