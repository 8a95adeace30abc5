import { AggregatorRegistry, Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from '@prometheus-io/client';
import type { Family } from './counts.ts';

/** What a service counts about itself, as Prometheus reads it. The one place that knows the client library. */

export interface Metrics {
  /** Counts of the service's answers; gives the function that takes one. */
  requests(): (operation: string, status: number, seconds: number) => void;
  /** A histogram of the service's own; gives the function that takes a value. */
  histogram(name: string, help: string, buckets: number[]): (value: number) => void;
  /** A value that is read when it is asked for, under a name of its own. */
  gauge(name: string, help: string, read: () => number): void;
  /** Such a value for each of several things, which the label tells apart. */
  gauges(name: string, help: string, label: string, read: () => Iterable<readonly [of: string, value: number]>): void;
  /**
   * Something that is counted, under a name of its own; gives the function that counts one more, by a value of its label.
   * @param values of the label that are shown from the start
   */
  counter(name: string, help: string, label?: string, values?: readonly string[]): (value?: string) => void;
  /** Counts that are kept elsewhere, and read when they are asked for. */
  counts(read: () => readonly Family[]): void;
  /** All of those, as they stand. */
  counted(): Family[];
  /** Everything but `counts`, as it can be sent to another process that exposes it beside its own. */
  snapshot(): Promise<MetricsSnapshot>;
  /** Everything, in the text exposition format, and its media type; what other processes have sent included. */
  expose(others?: readonly MetricsSnapshot[]): Promise<{ text: string; type: string }>;
}

/** Made of what the structured clone of a message channel takes; whoever holds it only passes it on. */
export type MetricsSnapshot = readonly object[];

const LATENCY_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];

/**
 * @param service goes in front of every name: `core_requests_total`
 * @param worker which of several processes of the service this is: the label `worker` on everything but `counts`, so that a
 *   process that starts anew is seen as one, where a sum over all of them would just fall
 */
export function createMetrics(service: string, worker?: number): Metrics {
  const registry = new Registry();
  if (worker !== undefined) registry.setDefaultLabels({ worker });
  const registers = [registry];
  const sources: (() => readonly Family[])[] = [];
  const counted = () => sources.flatMap((read) => read());
  collectDefaultMetrics({ register: registry });
  return {
    requests: () => countRequests(service, registry),
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
    gauges(name, help, label, read) {
      new Gauge({
        name,
        help,
        registers,
        labelNames: [label],
        collect() {
          for (const [of, value] of read()) this.set({ [label]: of }, value);
        },
      });
    },
    counter(name, help, label, values = []) {
      const counter = new Counter({ name, help, labelNames: label === undefined ? [] : [label], registers });
      const count = (value: string, more: number) =>
        label === undefined ? counter.inc(more) : counter.inc({ [label]: value }, more);
      for (const value of values) count(value, 0);
      return (value = '') => count(value, 1);
    },
    counts: (read) => void sources.push(read),
    counted,
    snapshot: () => snapshotOf(registry),
    async expose(others = []) {
      const isAlone = others.length === 0 && sources.length === 0;
      const whole = isAlone ? registry : merge([await snapshotOf(registry), counted().map(toBeSummed), ...others]);
      return { text: await whole.metrics(), type: registry.contentType };
    },
  };
}

function countRequests(service: string, registry: Registry): ReturnType<Metrics['requests']> {
  const registers = [registry];
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
  return (operation, status, seconds) => {
    requests.inc({ operation, status });
    latency.observe({ operation }, seconds);
  };
}

/** Each process's series bear labels of their own, so that none is ever added to another's. */
const toBeSummed = <T extends object>(metric: T) => ({ ...metric, aggregator: 'sum' });

async function snapshotOf(registry: Registry): Promise<MetricsSnapshot> {
  return (await registry.getMetricsAsJSON()).map(toBeSummed);
}

const merge = (snapshots: readonly MetricsSnapshot[]): Registry =>
  AggregatorRegistry.aggregate([...snapshots] as object[]);
