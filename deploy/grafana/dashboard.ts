/** The default targets of the links, on the operators' listener of a gateway. Dashboard variables override them. */
const CONSOLE = 'http://127.0.0.1:9090/';
const RUNBOOK = 'http://127.0.0.1:9090/runbook';
const DATASOURCE = { type: 'prometheus', uid: '$datasource' };

interface Row {
  readonly question: string;
  readonly panels: readonly Panel[];
}

type Panel = ReturnType<typeof stat | typeof graph>;

/**
 * The dashboard of all gateways and cores, in Grafana's JSON without the fields that Grafana adds itself. No dashboard
 * shows a single key, because no metric names one; the console shows the requests with each key.
 */
export const describeDashboard = (rows: readonly Row[]) => ({
  title: 'Animal store gateway',
  uid: 'animal-store-gateway',
  schemaVersion: 42,
  tags: ['animal-store'],
  timezone: 'browser',
  // All panels share one crosshair.
  graphTooltip: 1,
  refresh: '15s',
  time: { from: 'now-1h', to: 'now' },
  templating: {
    list: [
      { type: 'datasource', name: 'datasource', label: 'Prometheus', query: 'prometheus' },
      labelValues('instance', 'Gateway', 'up{job="gateway"}'),
      labelValues('plan', 'Plan', 'gateway_keys_asking'),
      hidden('console', 'Console', CONSOLE),
      hidden('runbook', 'Runbook', RUNBOOK),
    ],
  },
  links: [
    linkTo('Runbook', `\${runbook}`, 'What to do about each alert'),
    linkTo(
      'Console: keys, plans, bans',
      `\${console}`,
      'No metric names a key. The console shows the requests with each key.',
    ),
  ],
  annotations: {
    list: [
      eventsOf('Plans changed', 'blue', 'changes(max(gateway_plans_changed_timestamp_seconds)[1m:15s]) > 0'),
      eventsOf('Alerts', 'red', 'ALERTS{alertstate="firing"}', '{{alertname}}'),
    ],
  },
  panels: placed(rows),
});

const WIDTH = 24;

/** Places the panels of each row from left to right, below its title. */
function placed(rows: readonly Row[]): object[] {
  const made: object[] = [];
  let y = 0;
  const put = (panel: object, x: number, size: Panel['size']) =>
    made.push({ id: made.length + 1, ...panel, gridPos: { x, y, ...size } });
  for (const { question, panels } of rows) {
    put({ type: 'row', title: question, collapsed: false, panels: [] }, 0, { w: WIDTH, h: 1 });
    let [x, height] = [WIDTH, 1];
    for (const { size, ...panel } of panels) {
      if (x + size.w > WIDTH) [x, y] = [0, y + height];
      put(panel, x, size);
      x += size.w;
      height = size.h;
    }
    y += height;
  }
  return made;
}

const eventsOf = (name: string, iconColor: string, expr: string, titleFormat = name) => ({
  name,
  datasource: DATASOURCE,
  enable: true,
  placement: 'inControlsMenu',
  iconColor,
  expr,
  titleFormat,
});

/** A variable with the values of a label. They are read again when the time range changes. */
const labelValues = (name: string, label: string, series: string) => ({
  type: 'query',
  name,
  label,
  datasource: DATASOURCE,
  query: `label_values(${series}, ${name})`,
  refresh: 2,
  multi: true,
  includeAll: true,
  allValue: '.*',
  current: { text: 'All', value: '$__all' },
});

const hidden = (name: string, label: string, query: string) => ({ type: 'constant', name, label, query, hide: 2 });

const linkTo = (title: string, url: string, tooltip = '') => ({
  type: 'link',
  title,
  url,
  tooltip,
  placement: 'inControlsMenu',
  targetBlank: true,
});

/** A query, and the name of each of its series. */
type Query = readonly [expression: string, legend: string];

interface About {
  readonly title: string;
  /** The description of the panel, shown by its info icon. */
  readonly what: string;
  /** A plain number by default. */
  readonly unit?: string;
  /** Its section of the runbook, as an anchor. */
  readonly runbook: string;
}

interface StatAbout extends About {
  readonly query: string;
  /** The lowest values shown in yellow and in red; undefined for a number that is neither good nor bad. */
  readonly bad?: { readonly yellow?: number; readonly red: number };
  /** The lowest good value; lower values are shown in red. */
  readonly least?: number;
}

/** A number whose colour shows how good it is. */
export const stat = ({ query, bad, least, unit = 'none', ...about }: StatAbout) => ({
  type: 'stat',
  ...described(about, [[query, '']]),
  size: { w: 4, h: 4 },
  fieldConfig: { defaults: { unit, thresholds: thresholdsOf(bad, least) }, overrides: [] },
  options: {
    graphMode: 'area',
    colorMode: bad === undefined && least === undefined ? 'none' : 'background',
    reduceOptions: { calcs: ['lastNotNull'] },
  },
});

function thresholdsOf(bad: StatAbout['bad'], least: number | undefined) {
  if (least !== undefined) return thresholds('red', { green: least });
  return bad === undefined ? thresholds('text') : thresholds('green', bad);
}

/** @param above colours, each with the value from which it is shown */
const thresholds = (below: string, above: Readonly<Record<string, number>> = {}) => ({
  mode: 'absolute',
  steps: [[below, null] as const, ...Object.entries(above)].map(([color, value]) => ({ value, color })),
});

interface GraphAbout extends About {
  readonly queries: readonly Query[];
  /** A red line at the value that triggers an alert. */
  readonly alertAt?: number;
  /** Colours of series, by regular expressions that match their names. */
  readonly colours?: Readonly<Record<string, string>>;
}

/** Lines over time. */
export const graph = ({ queries, alertAt, colours = {}, unit = 'none', ...about }: GraphAbout) => ({
  type: 'timeseries',
  ...described(about, queries),
  size: { w: 8, h: 8 },
  fieldConfig: {
    defaults: {
      custom: { fillOpacity: 8, ...(alertAt !== undefined && { thresholdsStyle: { mode: 'dashed' } }) },
      unit,
      min: 0,
      ...(alertAt !== undefined && { thresholds: thresholds('transparent', { red: alertAt }) }),
    },
    overrides: Object.entries(colours).map(([options, fixedColor]) => ({
      matcher: { id: 'byRegexp', options },
      properties: [{ id: 'color', value: { mode: 'fixed', fixedColor } }],
    })),
  },
  options: { legend: { displayMode: 'list', placement: 'bottom', showLegend: true, calcs: ['lastNotNull', 'max'] } },
});

const described = ({ title, what, runbook }: About, queries: readonly Query[]) => ({
  title,
  description: what,
  datasource: DATASOURCE,
  links: [linkTo('Runbook', `\${runbook}#${runbook}`)],
  targets: queries.map(([expr, legendFormat], at) => ({
    datasource: DATASOURCE,
    expr,
    legendFormat,
    refId: String.fromCharCode('A'.charCodeAt(0) + at),
  })),
});

/** Parts of queries that several panels share. `$instance` and `$plan` are the dashboard's variables. */

export const GATEWAY = 'instance=~"$instance"';
export const PLAN = `${GATEWAY},plan=~"$plan"`;
export const quantile = (of: number, by: string, buckets: string) =>
  `histogram_quantile(${of}, sum by (${by}) (${buckets}{${GATEWAY}}))`;
export const requests = (where: string) => `sum(gateway:requests:rate1m{${where}})`;
/** Excludes 505, because it is caused by the client's HTTP version. */
export const FAILED = 'status=~"5..",status!="505"';
export const gauges = (metric: string, by: string, of: 'max' | 'sum' | 'min' = 'max') =>
  `${of} by (${by}) (${metric}{${GATEWAY}})`;
