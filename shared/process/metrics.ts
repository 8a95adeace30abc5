import { collectDefaultMetrics, type Metric, Registry } from '@prometheus-io/client';
import { Counter, type Family, Histogram, Label, positionOfStatus, type Series, statusLabel, sumOf } from './counts.ts';

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
  /** Everything except `counts`, for another process that exposes it together with its own. */
  snapshot(): Promise<Family[]>;
  /** Everything in the text exposition format, with its media type. Includes the snapshots of other processes. */
  expose(others?: readonly (readonly Family[])[]): Promise<{ text: string; type: string }>;
}

type LabelledValues = Iterable<readonly [of: string, value: number]>;

const LATENCY_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];

/** The library's measurements of the process. All services share them, because the library never stops measuring. */
let ofProcess: Registry | undefined;

/**
 * @param service the prefix of every name, as in `core_requests_total`
 * @param worker the number of this process, if the service has several. It becomes the label `worker` on everything
 *   except counters. This makes the restart of one process visible: in a sum over all processes, it would look like a
 *   mere drop.
 */
export function createMetrics(service: string, worker?: number): Metrics {
  ofProcess ??= measureProcess();
  const sources: (() => readonly Family[])[] = [];
  const gauges: (() => Promise<Family>)[] = [];
  const counted = () => sources.flatMap((read) => read());
  const addGauge = (name: string, help: string, read: () => Promise<Family['values']>) =>
    void gauges.push(async () => ({ name, help, type: 'gauge', values: await read() }));

  async function snapshot(): Promise<Family[]> {
    const measured = withRecentLag((await ofProcess?.getMetricsAsJSON()) as unknown as Family[]);
    const read = [...measured, ...(await Promise.all(gauges.map((one) => one())))];
    if (worker === undefined) return read;
    const labelled = ({ labels, ...one }: Series) => ({ ...one, labels: { ...labels, worker: String(worker) } });
    return read.map((family) => ({ ...family, values: family.values.map(labelled) }));
  }

  return {
    requests(operations) {
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
      sources.push(() => [requests.family(), latency.family()]);
      return (name, status, seconds) => {
        const position = operation.positionOf(name);
        requests.add(position, positionOfStatus(status));
        latency.observe(seconds, position);
      };
    },
    gauge(name, help, read) {
      addGauge(name, help, async () => {
        const value = await read();
        return value === undefined ? [] : [{ labels: {}, value }];
      });
    },
    gauges(name, help, label, read) {
      addGauge(name, help, async () => [...(await read())].map(([of, value]) => ({ labels: { [label]: of }, value })));
    },
    counter(name, help, label, values = ['']) {
      const counter = new Counter({ name, help }, label === undefined ? undefined : new Label(label, values));
      for (const value of values) counter.declare(value);
      sources.push(() => [counter.family()]);
      return (value = '') => counter.addMany(1, value);
    },
    counts: (read) => void sources.push(read),
    counted,
    snapshot,
    expose: async (others = []) => await textOf(sumOf([await snapshot(), counted(), ...others])),
  };
}

function measureProcess(): Registry {
  const register = new Registry();
  // By default the library wakes the process 110 times a second, which is most of what an idle process costs.
  const seldom = { eventLoopUtilizationTimeout: 1_000, eventLoopMonitoringPrecision: 50 };
  collectDefaultMetrics({ register, ...seldom });
  return register;
}

const LAG_MAX = 'nodejs_eventloop_lag_max_seconds';
/** Less than Prometheus' usual interval, so that a single reader sees each pause once. */
const RECENT_MS = 10_000;
let lags: { readonly at: number; readonly seconds: number }[] = [];

/**
 * The library's maximum covers only the time since the last read, so several readers would hide pauses from each other.
 * This one covers 10 s in addition.
 */
function withRecentLag(measured: readonly Family[]): Family[] {
  const now = performance.now();
  const maximumOf = (values: Family['values']) => {
    const seconds = values[0]?.value ?? 0;
    lags = [...lags.filter(({ at }) => now - at < RECENT_MS), { at: now, seconds }];
    return [{ labels: {}, value: Math.max(...lags.map((lag) => lag.seconds)) }];
  };
  return measured.map((one) => (one.name === LAG_MAX ? { ...one, values: maximumOf(one.values) } : one));
}

async function textOf(families: readonly Family[]): Promise<{ text: string; type: string }> {
  const registry = new Registry();
  for (const family of families) registry.registerMetric({ ...family, get: async () => family } as unknown as Metric);
  return { text: await registry.metrics(), type: registry.contentType };
}
