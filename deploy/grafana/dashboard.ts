import {
  BigValueColorMode,
  BigValueGraphMode,
  GraphThresholdsStyleConfigBuilder,
  GraphThresholdsStyleMode,
  ReduceDataOptionsBuilder,
  VizLegendOptionsBuilder,
} from '@grafana/grafana-foundation-sdk/common';
import {
  AnnotationQueryBuilder,
  ConstantVariableBuilder,
  type Dashboard,
  DashboardBuilder,
  DashboardCursorSync,
  DashboardLinkBuilder,
  DashboardLinkType,
  DatasourceVariableBuilder,
  FieldColorBuilder,
  FieldColorModeId,
  QueryVariableBuilder,
  RowBuilder,
  ThresholdsConfigBuilder,
  ThresholdsMode,
  VariableRefresh,
} from '@grafana/grafana-foundation-sdk/dashboard';
import { DataqueryBuilder } from '@grafana/grafana-foundation-sdk/prometheus';
import { PanelBuilder as StatBuilder } from '@grafana/grafana-foundation-sdk/stat';
import { PanelBuilder as TimeseriesBuilder } from '@grafana/grafana-foundation-sdk/timeseries';

/** Where the dashboard's links lead unless its variables say otherwise: a gateway's operators' listener. */
const CONSOLE = 'http://127.0.0.1:9090/';
const RUNBOOK = 'http://127.0.0.1:9090/runbook';
const DATASOURCE = { type: 'prometheus', uid: '$datasource' };

interface Row {
  readonly question: string;
  readonly panels: readonly (StatBuilder | TimeseriesBuilder)[];
}

/**
 * The dashboard of all gateways and cores. There is none per key: no metric names a key. What one key does is in the
 * console.
 */
export function describeDashboard(rows: readonly Row[]): Dashboard {
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
    .annotation(eventsOf('Plans changed', 'blue', 'changes(max(gateway_plans_changed_timestamp_seconds)[1m:15s]) > 0'))
    .annotation(eventsOf('Alerts', 'red', 'ALERTS{alertstate="firing"}', '{{alertname}}'));
  for (const { question, panels } of rows) {
    dashboard.withRow(new RowBuilder(question));
    for (const panel of panels) dashboard.withPanel(panel);
  }
  const built = dashboard.build();
  const panels = (built.panels ?? []).map((panel, at) => ({ ...panel, id: at + 1 }));
  return { ...built, panels };
}

const eventsOf = (name: string, colour: string, expression: string, text = name): AnnotationQueryBuilder =>
  new AnnotationQueryBuilder()
    .name(name)
    .datasource(DATASOURCE)
    .enable(true)
    .iconColor(colour)
    .expr(expression)
    .titleFormat(text);

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

/** A query, and the name of each of its series. */
type Query = readonly [expression: string, legend: string];

interface About {
  readonly title: string;
  /** What it shows, for the panel's (i). */
  readonly what: string;
  /** A plain number by default. */
  readonly unit?: string;
  /** Its section of the runbook, as an anchor. */
  readonly runbook: string;
}

interface StatAbout extends About {
  readonly query: string;
  /** From this value on it is yellow, and red; undefined for a number that is neither good nor bad. */
  readonly bad?: { readonly yellow?: number; readonly red: number };
  /** The least good value; below, it is red. */
  readonly least?: number;
}

/** A number in the colour of how good it is. */
export const stat = ({ query, bad, least, ...about }: StatAbout): StatBuilder =>
  described(new StatBuilder(), about)
    .thresholds(thresholdsOf(bad, least))
    .colorMode(bad === undefined && least === undefined ? BigValueColorMode.None : BigValueColorMode.Background)
    .graphMode(BigValueGraphMode.Area)
    .reduceOptions(new ReduceDataOptionsBuilder().calcs(['lastNotNull']))
    .height(4)
    .span(4)
    .withTarget(targetOf([query, ''], 0));

function thresholdsOf(bad: StatAbout['bad'], least: number | undefined): ThresholdsConfigBuilder {
  if (least !== undefined) return thresholds([null, 'red'], [least, 'green']);
  if (bad === undefined) return thresholds([null, 'text']);
  const { yellow, red } = bad;
  return thresholds([null, 'green'], ...(yellow === undefined ? [] : [[yellow, 'yellow'] as const]), [red, 'red']);
}

const thresholds = (...steps: readonly (readonly [value: number | null, color: string])[]) =>
  new ThresholdsConfigBuilder().mode(ThresholdsMode.Absolute).steps(steps.map(([value, color]) => ({ value, color })));

interface GraphAbout extends About {
  readonly queries: readonly Query[];
  /** A red line at the value that raises an alert. */
  readonly alertAt?: number;
  /** A colour for series whose names match. */
  readonly colours?: Readonly<Record<string, string>>;
}

/** Lines over time. */
export function graph({ queries, alertAt, colours = {}, ...about }: GraphAbout): TimeseriesBuilder {
  const panel = described(new TimeseriesBuilder(), about)
    .min(0)
    .fillOpacity(8)
    .legend(new VizLegendOptionsBuilder().showLegend(true).calcs(['lastNotNull', 'max']))
    .height(8)
    .span(8);
  queries.forEach((query, at) => void panel.withTarget(targetOf(query, at)));
  if (alertAt !== undefined)
    panel
      .thresholds(thresholds([null, 'transparent'], [alertAt, 'red']))
      .thresholdsStyle(new GraphThresholdsStyleConfigBuilder().mode(GraphThresholdsStyleMode.Dashed));
  for (const [names, colour] of Object.entries(colours))
    panel.overrideByRegexp(names, [
      { id: 'color', value: new FieldColorBuilder().mode(FieldColorModeId.Fixed).fixedColor(colour).build() },
    ]);
  return panel;
}

function described<P extends StatBuilder | TimeseriesBuilder>(
  panel: P,
  { title, what, unit = 'none', runbook }: About,
): P {
  const link = new DashboardLinkBuilder('Runbook')
    .type(DashboardLinkType.Link)
    .url(`\${runbook}#${runbook}`)
    .targetBlank(true);
  panel.title(title).description(what).unit(unit).datasource(DATASOURCE).links([link]);
  return panel;
}

const targetOf = ([expression, legend]: Query, at: number): DataqueryBuilder =>
  new DataqueryBuilder()
    .datasource(DATASOURCE)
    .expr(expression)
    .legendFormat(legend)
    .refId(String.fromCharCode('A'.charCodeAt(0) + at));

/** Parts of queries that several panels share. `$instance` and `$plan` are the dashboard's variables. */

export const GATEWAY = 'instance=~"$instance"';
export const PLAN = `${GATEWAY},plan=~"$plan"`;
export const quantile = (of: number, by: string, buckets: string) =>
  `histogram_quantile(${of}, sum by (${by}) (${buckets}{${GATEWAY}}))`;
export const requests = (where: string) => `sum(gateway:requests:rate1m{${where}})`;
/** 505 answers a client's protocol. */
export const FAILED = 'status=~"5..",status!="505"';
export const gauges = (metric: string, by: string, of: 'max' | 'sum' | 'min' = 'max') =>
  `${of} by (${by}) (${metric}{${GATEWAY}})`;
