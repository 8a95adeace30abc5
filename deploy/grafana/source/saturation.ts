import { graph, stat } from './panels.ts';
import { GATEWAY, gauges } from './queries.ts';

/** Is there more to do than can be done? */

export const SATURATION_ROWS = [
  {
    question: 'Saturation?',
    panels: [
      stat({
        title: 'Turned away',
        what: 'Requests that were shed, and those for which a core was full.',
        unit: 'reqps',
        runbook: 'gatewayshedding',
        query: `sum(gateway:requests_without_decision:rate1m{${GATEWAY},reason="shed"}) + sum(gateway:upstream_errors:rate1m{${GATEWAY},kind="full"})`,
        bad: { red: 0.001 },
      }),
      stat({
        title: 'Connections refused',
        what: 'Over the limit of all connections.',
        unit: 'cps',
        runbook: 'gatewayconnectionsfull',
        query: `sum(rate(gateway_connections_refused_total{${GATEWAY},limit="total"}[1m]))`,
        bad: { red: 0.001 },
      }),
      stat({
        title: 'Event loop, longest pause',
        what: 'For so long nobody was served by one process.',
        unit: 's',
        runbook: 'gatewayeventloopblocked',
        query: `max(nodejs_eventloop_lag_max_seconds{job="gateway",${GATEWAY}})`,
        bad: { yellow: 0.2, red: 0.5 },
      }),
      stat({
        title: 'File descriptors',
        what: 'Used, of those that a process may have.',
        unit: 'percentunit',
        runbook: 'gatewaydescriptorsexhausted',
        query: `max(process_open_fds{job="gateway",${GATEWAY}} / process_max_fds{job="gateway",${GATEWAY}})`,
        bad: { yellow: 0.7, red: 0.9 },
      }),
      stat({
        title: 'Workers that crashed',
        what: 'In ten minutes.',
        unit: 'none',
        runbook: 'gatewayworkercrashes',
        query: `sum(increase(gateway_worker_crashes_total{${GATEWAY}}[10m])) or vector(0)`,
        bad: { red: 0.5 },
      }),
      stat({
        title: 'Log lines lost',
        what: 'In ten minutes, by gateways.',
        unit: 'none',
        runbook: 'loglinesdropped',
        query: `sum(increase(gateway_log_lines_dropped_total{${GATEWAY}}[10m]))`,
        bad: { red: 0.5 },
      }),
      graph({
        title: 'Under way, and the limit',
        what: 'Requests handed to a core, those of them that wait for a connection, and how many there may be.',
        unit: 'none',
        runbook: 'gatewayshedding',
        queries: [
          [gauges('gateway_upstream_in_flight', 'core', 'sum'), '{{core}} under way'],
          [gauges('gateway_upstream_queued', 'core', 'sum'), '{{core}} waiting'],
          [gauges('gateway_upstream_limit', 'core', 'sum'), '{{core}} limit'],
        ],
      }),
      graph({
        title: 'CPU',
        what: 'Cores of the machine that a process uses. A gateway process uses one at most.',
        unit: 'none',
        runbook: 'gatewayaddedlatencyhigh',
        queries: [
          [`rate(process_cpu_seconds_total{job="gateway",${GATEWAY}}[1m])`, '{{instance}} {{worker}}'],
          ['rate(process_cpu_seconds_total{job="core"}[1m])', '{{instance}}'],
        ],
      }),
      graph({
        title: 'Memory',
        what: 'Resident, by process.',
        unit: 'bytes',
        runbook: 'gatewayeventloopblocked',
        queries: [
          [`process_resident_memory_bytes{job="gateway",${GATEWAY}}`, '{{instance}} {{worker}}'],
          ['process_resident_memory_bytes{job="core"}', '{{instance}}'],
        ],
      }),
    ],
  },
];
