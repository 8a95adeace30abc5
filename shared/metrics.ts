import { Counter, collectDefaultMetrics, Histogram, Registry } from '@prometheus-io/client';

/** What a service counts about itself, as Prometheus reads it. The one place that knows the client library. */

export interface Metrics {
  /** One answered request. */
  answered(operation: string, status: number, seconds: number): void;
  /** A histogram of the service's own; gives the function that takes a value. */
  histogram(name: string, help: string, buckets: number[]): (value: number) => void;
  /** A counter by its whole name; gives the function that counts one under a value of its label. */
  counter(name: string, help: string, label: string): (value: string) => void;
  /** Everything, in the text exposition format, and its media type. */
  expose(): Promise<{ text: string; type: string }>;
}

const LATENCY_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];

/** @param service goes in front of every name: `core_requests_total` */
export function createMetrics(service: string): Metrics {
  const registry = new Registry();
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
    counter(name, help, label) {
      const counter = new Counter({ name, help, labelNames: [label], registers });
      return (value) => counter.inc({ [label]: value });
    },
    async expose() {
      return { text: await registry.metrics(), type: registry.contentType };
    },
  };
}
