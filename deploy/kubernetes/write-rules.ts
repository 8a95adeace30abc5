import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse, stringify } from 'yaml';

/** The rules of deploy/prometheus as a PrometheusRule, for clusters with the Prometheus Operator. */

const FOLDER = import.meta.dirname;
export const RULES_FILE = join(FOLDER, 'components/prometheus-operator/rules.yaml');
const SOURCES = ['recording.yml', 'alerts.yml'].map((name) => join(FOLDER, '../prometheus/rules', name));

const HEAD = '# Written from deploy/prometheus/rules by `npm run generate`.\n';

/** In Prometheus a group's name must be unique in its file only, and in a PrometheusRule in all of it. */
export function prometheusRule(): string {
  const groups = SOURCES.flatMap((file) => {
    const kind = file.endsWith('alerts.yml') ? 'alerts' : 'recording';
    const { groups } = parse(readFileSync(file, 'utf8')) as { groups: { name: string }[] };
    return groups.map((group) => ({ ...group, name: `${group.name}-${kind}` }));
  });
  const rule = {
    apiVersion: 'monitoring.coreos.com/v1',
    kind: 'PrometheusRule',
    metadata: { name: 'animal-store' },
    spec: { groups },
  };
  return HEAD + stringify(rule, { lineWidth: 0 });
}

if (import.meta.main) writeFileSync(RULES_FILE, prometheusRule());
