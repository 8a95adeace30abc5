import {
  AnnotationQueryBuilder,
  ConstantVariableBuilder,
  type Dashboard,
  DashboardBuilder,
  DashboardCursorSync,
  DashboardLinkBuilder,
  DashboardLinkType,
  DatasourceVariableBuilder,
  QueryVariableBuilder,
  RowBuilder,
  VariableRefresh,
} from '@grafana/grafana-foundation-sdk/dashboard';
import { DATASOURCE } from './panels.ts';
import { ROWS } from './rows.ts';

/** Where the dashboard's links lead unless its variables say otherwise: a gateway's operators' listener. */
const CONSOLE = 'http://127.0.0.1:9090/';
const RUNBOOK = 'http://127.0.0.1:9090/runbook';

/**
 * The dashboard of all gateways and cores. There is none per key: no metric names a key. What one key does is in the
 * console.
 */
export function describeDashboard(): Dashboard {
  const dashboard = new DashboardBuilder('Animal store gateway')
    .uid('animal-store-gateway')
    .tags(['animal-store'])
    .timezone('browser')
    .tooltip(DashboardCursorSync.Crosshair)
    .refresh('15s')
    .time({ from: 'now-1h', to: 'now' })
    .withVariable(new DatasourceVariableBuilder('datasource').label('Prometheus').type('prometheus'))
    .withVariable(labelValues('instance', 'Gateway', 'up{job="gateway"}'))
    .withVariable(labelValues('plan', 'Plan', 'gateway_keys_asking'))
    .withVariable(new ConstantVariableBuilder('console').label('Console').value(CONSOLE))
    .withVariable(new ConstantVariableBuilder('runbook').label('Runbook').value(RUNBOOK))
    .link(linkTo('Runbook', `\${runbook}`, 'What to do about each alert'))
    .link(linkTo('Console: one key, plans, bans', `\${console}`, 'No metric names a key: what one key does is there'))
    .annotation(
      new AnnotationQueryBuilder()
        .name('Plans changed')
        .datasource(DATASOURCE)
        .enable(true)
        .iconColor('blue')
        .expr('changes(max(gateway_plans_changed_timestamp_seconds)[1m:15s]) > 0')
        .titleFormat('Plans changed'),
    )
    .annotation(
      new AnnotationQueryBuilder()
        .name('Alerts')
        .datasource(DATASOURCE)
        .enable(true)
        .iconColor('red')
        .expr('ALERTS{alertstate="firing"}')
        .titleFormat('{{alertname}}'),
    );
  for (const { question, panels } of ROWS) {
    dashboard.withRow(new RowBuilder(question));
    for (const panel of panels) dashboard.withPanel(panel);
  }
  const built = dashboard.build();
  const panels = (built.panels ?? []).map((panel, at) => ({ ...panel, id: at + 1 }));
  return { ...built, panels };
}

const labelValues = (label: string, name: string, series: string): QueryVariableBuilder =>
  new QueryVariableBuilder(label)
    .label(name)
    .datasource(DATASOURCE)
    .query(`label_values(${series}, ${label})`)
    .refresh(VariableRefresh.OnTimeRangeChanged)
    .multi(true)
    .includeAll(true)
    .allValue('.*')
    .current({ text: 'All', value: '$__all' });

const linkTo = (title: string, url: string, tooltip: string): DashboardLinkBuilder =>
  new DashboardLinkBuilder(title).type(DashboardLinkType.Link).url(url).tooltip(tooltip).targetBlank(true);
