import { AggregatorRegistry, collectDefaultMetrics, Gauge, type Metric, Registry } from '@prometheus-io/client';
import { Counter, type Family, Histogram, Label, positionOfStatus, statusLabel } from './counts.ts';

/** A service's metrics for Prometheus. Only this file uses the client library. */

export interface Metrics {
  /**
   * Counts a service's requests and their durations.
   * @param operations the names of all operations
   * @returns the function that counts one request; its operation is undefined for an unknown one
   */
  requests(operations: readonly string[]): (operation: string | undefined, status: number, seconds: number) => void;
  /** A value that is read on each scrape; undefined shows no series. `name` is the full name. */
  gauge(name: string, help: string, read: () => number | undefined | Promise<number | undefined>): void;
  /** Like `gauge`, with one series for each value of the label. */
  gauges(name: string, help: string, label: string, read: () => LabelledValues | Promise<LabelledValues>): void;
  /**
   * A counter; `name` is the full name. Returns the function that adds one for a value of the label.
   * @param values all values of the label
   */
  counter(name: string, help: string, label?: string, values?: readonly string[]): (value?: string) => void;
  /** Counts kept elsewhere, read on each scrape. */
  counts(read: () => readonly Family[]): void;
  /** The current values of all `counts`. */
  counted(): Family[];
  /** Everything except `counts`, in a form that another process can expose together with its own. */
  snapshot(): Promise<MetricsSnapshot>;
  /** Everything in the text exposition format, with its media type. Includes the snapshots of other processes. */
  expose(others?: readonly MetricsSnapshot[]): Promise<{ text: string; type: string }>;
}

export type LabelledValues = Iterable<readonly [of: string, value: number]>;

/** An opaque value that can be structured-cloned. The process that receives it only passes it to `expose`. */
export type MetricsSnapshot = readonly object[];

const LATENCY_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];

/**
 * @param service the prefix of every name, as in `core_requests_total`
 * @param worker the number of this process, if the service has several. It becomes the label `worker` on everything
 *   except counters. This makes the restart of one process visible: in a sum over all processes, it would look like a
 *   mere drop.
 */
export function createMetrics(service: string, worker?: number): Metrics {
  const registry = new Registry();
  if (worker !== undefined) registry.setDefaultLabels({ worker });
  const registers = [registry];
  const sources: (() => readonly Family[])[] = [];
  const counted = () => sources.flatMap((read) => read());
  for (const metric of metricsOfProcess()) registry.registerMetric(metric);
  return {
    requests(operations) {
      const [count, families] = countRequests(service, operations);
      sources.push(families);
      return count;
    },
    gauge(name, help, read) {
      new Gauge({
        name,
        help,
        registers,
        async collect() {
          const value = await read();
          // A reset would show 0 instead of no series.
          if (value === undefined) this.remove();
          else this.set(value);
        },
      });
    },
    gauges(name, help, label, read) {
      new Gauge({
        name,
        help,
        registers,
        labelNames: [label],
        async collect() {
          const values = await read();
          // Removes series that no longer exist.
          this.reset();
          for (const [of, value] of values) this.set({ [label]: of }, value);
        },
      });
    },
    counter(name, help, label, values = ['']) {
      const counter = new Counter({ name, help }, label === undefined ? undefined : new Label(label, values));
      for (const value of values) counter.declare(value);
      sources.push(() => [counter.family()]);
      return (value = '') => counter.addMany(1, value);
    },
    counts: (read) => void sources.push(read),
    counted,
    snapshot: () => snapshotOf(registry),
    async expose(others = []) {
      const whole = merge([await snapshotOf(registry), counted().map(mergeable), ...others]);
      return { text: await whole.metrics(), type: registry.contentType };
    },
  };
}

let ofProcess: readonly Metric[] | undefined;

/** The library's measurements of the process. All registries share them, because the library never stops measuring. */
function metricsOfProcess(): readonly Metric[] {
  if (ofProcess === undefined) {
    const registry = new Registry();
    // By default the library wakes the process 110 times a second, which is most of what an idle process costs.
    const seldom = { eventLoopUtilizationTimeout: 1_000, eventLoopMonitoringPrecision: 50 };
    collectDefaultMetrics({ register: registry, ...seldom });
    ofProcess = registry.getMetricsAsArray().map(({ name }) => registry.getSingleMetric(name) as Metric);
  }
  return ofProcess;
}

function countRequests(
  service: string,
  operations: readonly string[],
): [count: ReturnType<Metrics['requests']>, families: () => Family[]] {
  const operation = new Label('operation', ['none', ...operations]);
  const requests = new Counter(
    { name: `${service}_requests_total`, help: 'Requests answered, by operation and status.' },
    operation,
    statusLabel(),
  );
  const latency = new Histogram(
    {
      name: `${service}_request_duration_seconds`,
      help: 'Time from the head of a request to its response, by operation.',
    },
    LATENCY_BUCKETS,
    operation,
    'observed',
  );
  const count: ReturnType<Metrics['requests']> = (name, status, seconds) => {
    const position = operation.positionOf(name);
    requests.add(position, positionOfStatus(status));
    latency.observe(seconds, position);
  };
  return [count, () => [requests.family(), latency.family()]];
}

/** The library requires an aggregator. Each process has its own labels, so nothing is added up. */
const mergeable = <T extends object>(metric: T) => ({ ...metric, aggregator: 'sum' });

async function snapshotOf(registry: Registry): Promise<MetricsSnapshot> {
  return (await registry.getMetricsAsJSON()).map(mergeable);
}

const merge = (snapshots: readonly MetricsSnapshot[]): Registry =>
  AggregatorRegistry.aggregate([...snapshots] as object[]);
