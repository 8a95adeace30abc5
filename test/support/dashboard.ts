import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './process.ts';

/** The shipped dashboard, as Grafana reads it. */

interface Panel {
  readonly id: number;
  readonly type: 'row' | 'stat' | 'timeseries';
  readonly title: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly description?: string;
  readonly links?: readonly { readonly url: string }[];
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
  readonly fieldConfig?: {
    readonly defaults: {
      readonly unit: string;
      readonly thresholds?: { readonly steps: readonly { readonly value: number | null; readonly color: string }[] };
    };
  };
}

interface Dashboard {
  readonly uid: string;
  readonly annotations: { readonly list: readonly { readonly expr: string }[] };
  readonly templating: {
    readonly list: readonly { readonly name: string; readonly type: string; readonly query: unknown }[];
  };
  readonly panels: readonly Panel[];
}

export const DASHBOARD_TEXT = readFileSync(join(ROOT, 'deploy/grafana/dashboards/gateway.json'), 'utf8');
export const DASHBOARD = JSON.parse(DASHBOARD_TEXT) as Dashboard;
export const STATS = DASHBOARD.panels.filter(({ type }) => type === 'stat');

/** A query as Grafana sends it when all gateways and plans are selected. */
export const filledIn = (expression: string): string => expression.replaceAll(/\$(instance|plan)\b/g, '.*');

/** The colour of a stat with this value: that of the last step that the value reaches. */
export function colourOf({ fieldConfig }: Panel, value: number): string | undefined {
  const { steps = [] } = fieldConfig?.defaults.thresholds ?? {};
  return steps.findLast((step) => step.value === null || value >= step.value)?.color;
}
