import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { prometheusRule, RULES_FILE } from '../../deploy/generate.ts';
import { type Manifest, manifestsOf, OPERATOR_COMPONENT, OVERLAY, workloadsOf } from '../support/manifests.ts';
import { ROOT } from '../support/process.ts';

const manifests = manifestsOf(OVERLAY);
const component = manifestsOf(OPERATOR_COMPONENT);
const monitors = component.filter(({ kind }) => kind === 'ServiceMonitor');
const services = manifests.filter(({ kind }) => kind === 'Service');

interface Group {
  readonly name: string;
  readonly rules: readonly unknown[];
}

const groupsIn = (file: string): Group[] =>
  (parse(readFileSync(join(ROOT, 'deploy/prometheus', file), 'utf8')) as { groups: Group[] }).groups;

test('the kustomize component contains Prometheus Operator resources without a namespace, so the overlay sets it', () => {
  const text = readFileSync(join(ROOT, OPERATOR_COMPONENT, 'kustomization.yaml'), 'utf8');
  expect(parse(text)).toMatchObject({ apiVersion: 'kustomize.config.k8s.io/v1alpha1', kind: 'Component' });
  for (const { apiVersion, metadata } of component)
    expect([apiVersion, Object.keys(metadata)]).toEqual(['monitoring.coreos.com/v1', ['name']]);
  expect(component.map(({ kind }) => kind)).toEqual(['ServiceMonitor', 'ServiceMonitor', 'PrometheusRule']);
});

describe.each(monitors.map((monitor) => [monitor.metadata.name, monitor] as const))(
  'ServiceMonitor %s',
  (name, { spec }) => {
    const selected = services.filter(({ metadata }) =>
      Object.entries(spec.selector.matchLabels).every(([label, value]) => metadata.labels?.[label] === value),
    );

    test('finds each pod of one Service once, at its metrics port', () => {
      expect(selected).toHaveLength(1);
      const [service] = selected as [Manifest];
      const pods = workloadsOf(manifests).filter(({ labels }) =>
        Object.entries(service.spec.selector).every(([label, value]) => labels[label] === value),
      );
      expect(pods.map((pod) => pod.name)).toEqual([name]);
      const [endpoint] = spec.endpoints;
      expect(spec.endpoints).toHaveLength(1);
      expect(service.spec.ports.map((port: { name: string }) => port.name)).toContain(endpoint.port);
      expect(endpoint.port).toBe(name === 'gateway' ? 'admin' : 'http');
      expect(endpoint.path).toBe('/metrics');
    });

    test('has the interval and the job name that the rules expect', () => {
      const scraping = parse(readFileSync(join(ROOT, 'deploy/prometheus/prometheus.yml'), 'utf8')) as {
        global: { scrape_interval: string };
        scrape_configs: { job_name: string }[];
      };
      expect(scraping.scrape_configs.map(({ job_name }) => job_name)).toContain(name);
      expect(spec.endpoints[0]).toMatchObject({
        interval: scraping.global.scrape_interval,
        relabelings: [{ targetLabel: 'job', replacement: name }],
      });
    });
  },
);

test('the PrometheusRule, written by `npm run generate`, contains every rule in uniquely named groups', () => {
  expect(readFileSync(RULES_FILE, 'utf8')).toBe(prometheusRule());
  const [rule] = component.filter(({ kind }) => kind === 'PrometheusRule') as [Manifest];
  const groups = rule.spec.groups as Group[];
  const sources = [...groupsIn('rules/recording.yml'), ...groupsIn('rules/alerts.yml')];
  expect(groups.map(({ rules }) => rules)).toEqual(sources.map(({ rules }) => rules));
  expect(new Set(groups.map(({ name }) => name)).size).toBe(sources.length);
});
