import {
  BigValueColorMode,
  BigValueGraphMode,
  GraphThresholdsStyleConfigBuilder,
  GraphThresholdsStyleMode,
  ReduceDataOptionsBuilder,
  VizLegendOptionsBuilder,
} from '@grafana/grafana-foundation-sdk/common';
import {
  DashboardLinkBuilder,
  DashboardLinkType,
  FieldColorBuilder,
  FieldColorModeId,
  type Threshold,
  ThresholdsConfigBuilder,
  ThresholdsMode,
} from '@grafana/grafana-foundation-sdk/dashboard';
import { DataqueryBuilder } from '@grafana/grafana-foundation-sdk/prometheus';
import { PanelBuilder as StatBuilder } from '@grafana/grafana-foundation-sdk/stat';
import { PanelBuilder as TimeseriesBuilder } from '@grafana/grafana-foundation-sdk/timeseries';

/** The two kinds of panels of the dashboard. */

export const DATASOURCE = { type: 'prometheus', uid: '$datasource' };

/** A query, and the name of each of its series. */
export type Query = readonly [expression: string, legend: string];

interface About {
  readonly title: string;
  /** What it shows, for the panel's (i). */
  readonly what: string;
  readonly unit: string;
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
    .thresholds(thresholds(stepsOf(bad, least)))
    .colorMode(bad === undefined && least === undefined ? BigValueColorMode.None : BigValueColorMode.Background)
    .graphMode(BigValueGraphMode.Area)
    .reduceOptions(new ReduceDataOptionsBuilder().calcs(['lastNotNull']))
    .height(4)
    .span(4)
    .withTarget(targetOf([query, ''], 0));

function stepsOf(bad: StatAbout['bad'], least: number | undefined): Threshold[] {
  if (least !== undefined) return steps([null, 'red'], [least, 'green']);
  if (bad === undefined) return steps([null, 'text']);
  const { yellow, red } = bad;
  return steps([null, 'green'], ...(yellow === undefined ? [] : [[yellow, 'yellow'] as const]), [red, 'red']);
}

const steps = (...pairs: readonly (readonly [value: number | null, color: string])[]): Threshold[] =>
  pairs.map(([value, color]) => ({ value, color }));

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
      .thresholds(thresholds(steps([null, 'transparent'], [alertAt, 'red'])))
      .thresholdsStyle(new GraphThresholdsStyleConfigBuilder().mode(GraphThresholdsStyleMode.Dashed));
  for (const [names, colour] of Object.entries(colours))
    panel.overrideByRegexp(names, [
      { id: 'color', value: new FieldColorBuilder().mode(FieldColorModeId.Fixed).fixedColor(colour).build() },
    ]);
  return panel;
}

const thresholds = (all: Threshold[]) => new ThresholdsConfigBuilder().mode(ThresholdsMode.Absolute).steps(all);

function described<P extends StatBuilder | TimeseriesBuilder>(panel: P, { title, what, unit, runbook }: About): P {
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
