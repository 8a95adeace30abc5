import { AggregatorRegistry, Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from '@prometheus-io/client';

/** What a service counts about itself, as Prometheus reads it. The one place that knows the client library. */

export interface Metrics {
  /** One answered request. */
  answered(operation: string, status: number, seconds: number): void;
  /** A histogram of the service's own; gives the function that takes a value. */
  histogram(name: string, help: string, buckets: number[]): (value: number) => void;
  /** A value that is read when it is asked for, under a name of its own. */
  gauge(name: string, help: string, read: () => number): void;
  /** Something that is counted, under a name of its own; gives the function that counts one more, by a value of its label. */
  counter(name: string, help: string, label?: string): (value?: string) => void;
  /** Everything, as it can be sent to another process that exposes it beside its own. */
  snapshot(): Promise<MetricsSnapshot>;
  /** Everything, in the text exposition format, and its media type; what other processes have sent included. */
  expose(others?: readonly MetricsSnapshot[]): Promise<{ text: string; type: string }>;
}

/** Made of what the structured clone of a message channel takes; whoever holds it only passes it on. */
export type MetricsSnapshot = readonly object[];

const LATENCY_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];

/**
 * @param service goes in front of every name: `core_requests_total`
 * @param worker which of several processes of the service this is: the label `worker` on everything, so that a process
 *   that starts anew is seen as one, where a sum over all of them would just fall
 */
export function createMetrics(service: string, worker?: number): Metrics {
  const registry = new Registry();
  if (worker !== undefined) registry.setDefaultLabels({ worker });
  const registers = [registry];
  collectDefaultMetrics({ register: registry });
  const requests = new Counter({
    name: `${service}_requests_total`,
    help: 'Requests answered, by operation and status.',
    labelNames: ['operation', 'status'],
    registers,
  });
  const latency = new Histogram({
    name: `${service}_request_duration_seconds`,
    help: 'Time from the head of a request to its answer, by operation.',
    labelNames: ['operation'],
    buckets: LATENCY_BUCKETS,
    registers,
  });
  return {
    answered(operation, status, seconds) {
      requests.inc({ operation, status });
      latency.observe({ operation }, seconds);
    },
    histogram(name, help, buckets) {
      const histogram = new Histogram({ name: `${service}_${name}`, help, buckets, registers });
      return (value) => histogram.observe(value);
    },
    gauge(name, help, read) {
      new Gauge({
        name,
        help,
        registers,
        collect() {
          this.set(read());
        },
      });
    },
    counter(name, help, label) {
      const counter = new Counter({ name, help, labelNames: label === undefined ? [] : [label], registers });
      return (value) => (label === undefined ? counter.inc() : counter.inc({ [label]: value ?? '' }));
    },
    snapshot: () => snapshotOf(registry),
    async expose(others = []) {
      const whole = others.length === 0 ? registry : merge([await snapshotOf(registry), ...others]);
      return { text: await whole.metrics(), type: registry.contentType };
    },
  };
}

/** Marked to be summed: each process's series bear labels of their own, so that none is ever added to another's. */
async function snapshotOf(registry: Registry): Promise<MetricsSnapshot> {
  return (await registry.getMetricsAsJSON()).map((metric) => ({ ...metric, aggregator: 'sum' }));
}

const merge = (snapshots: readonly MetricsSnapshot[]): Registry =>
  AggregatorRegistry.aggregate([...snapshots] as object[]);
