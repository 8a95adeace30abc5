import { expect, test } from 'vitest';
import { type Manifest, manifestsOf, OVERLAY, workloadsOf } from '../support/manifests.ts';

const manifests = manifestsOf(OVERLAY);
const workloads = workloadsOf(manifests);

test('gateways find every ready core: their CORE_URL names a headless Service', () => {
  const [gateway, core] = ['gateway', 'core'].map((name) => workloads.find((workload) => workload.name === name));
  const { value = '' } = gateway?.pod.containers[0]?.env.find(({ name }) => name === 'CORE_URL') ?? {};
  const { hostname, port } = new URL(value);
  const services = manifests.filter(({ kind, metadata }) => kind === 'Service' && metadata.name === hostname);
  const [service] = services as [Manifest];
  expect(service.spec).toMatchObject({ clusterIP: 'None', publishNotReadyAddresses: false });
  expect(core?.labels).toMatchObject(service.spec.selector);
  // A headless Service cannot map ports.
  expect(core?.pod.containers[0]?.ports.map(({ containerPort }) => String(containerPort))).toContain(port);
});
