import { graph, stat } from './panels.ts';
import { FAILED, GATEWAY, gauges, PLAN, quantile, refusedShare, requests } from './queries.ts';

/** Are clients hurt, and of which plan? */

const STATUS_COLOURS = { '^5..$': 'red', '^429$': 'orange', '^4..$': 'yellow', '^2..$': 'green' };

export const CLIENT_ROWS = [
  {
    question: 'Are clients hurt?',
    panels: [
      stat({
        title: '5xx',
        what: 'Share of all answers that are 5xx. Red is where the alert is.',
        unit: 'percentunit',
        runbook: 'gatewayerrorratiohigh',
        query: `(${requests(`${GATEWAY},${FAILED}`)} or vector(0)) / (${requests(GATEWAY)} > 0)`,
        bad: { yellow: 0.005, red: 0.02 },
      }),
      stat({
        title: 'p99 of a request',
        what: 'From the head of a request until its answer was handed over, in five minutes.',
        unit: 's',
        runbook: 'gatewayaddedlatencyhigh',
        query: quantile(0.99, 'le', 'gateway:request_seconds_bucket:rate5m'),
        bad: { yellow: 0.25, red: 1 },
      }),
      stat({
        title: 'Keys refused',
        what: 'Share of the keys that asked in the last minutes of which a request was refused for its limits.',
        unit: 'percentunit',
        runbook: 'gatewayplanrefusals',
        query: `sum(max by (plan) (gateway_keys_refused{${PLAN}})) / (sum(max by (plan) (gateway_keys_asking{${PLAN}})) > 0)`,
        bad: { yellow: 0.1, red: 0.2 },
      }),
      stat({
        title: 'Unknown keys',
        what: 'Share of the decisions that are on keys which Redis does not have.',
        unit: 'percentunit',
        runbook: 'gatewayunknownkeys',
        query: `sum(gateway:decisions:rate1m{${GATEWAY},outcome="unknown"}) / (sum(gateway:decisions:rate1m{${GATEWAY}}) > 0)`,
        bad: { yellow: 0.1, red: 0.5 },
      }),
      stat({
        title: 'Gateways down',
        what: 'Gateways that Prometheus cannot reach.',
        unit: 'none',
        runbook: 'gatewaydown',
        query: `count(up{job="gateway",${GATEWAY}} == 0) or vector(0)`,
        bad: { red: 1 },
      }),
      stat({
        title: 'Requests',
        what: 'Of all clients. Neither good nor bad.',
        unit: 'reqps',
        runbook: 'runbook',
        query: requests(GATEWAY),
      }),
      graph({
        title: 'Answers by status',
        what: '5xx red, 429 orange, other 4xx yellow, 2xx green.',
        unit: 'reqps',
        runbook: 'gatewayerrorratiohigh',
        queries: [[`sum by (status) (gateway:requests:rate1m{${GATEWAY}})`, '{{status}}']],
        colours: STATUS_COLOURS,
      }),
      graph({
        title: 'Time of a request',
        what: 'Half of all requests are faster than p50, one of a hundred is slower than p99.',
        unit: 's',
        runbook: 'gatewayaddedlatencyhigh',
        queries: [
          [quantile(0.5, 'le', 'gateway:request_seconds_bucket:rate5m'), 'p50'],
          [quantile(0.99, 'le', 'gateway:request_seconds_bucket:rate5m'), 'p99'],
        ],
      }),
      graph({
        title: 'What became of requests',
        what: 'Decisions by outcome, and requests without one by the reason.',
        unit: 'reqps',
        runbook: 'a-client-complains-of-429',
        queries: [
          [`sum by (outcome) (gateway:decisions:rate1m{${GATEWAY}}) > 0`, '{{outcome}}'],
          [
            `sum by (reason) (gateway:requests_without_decision:rate1m{${GATEWAY},reason!="reference"})`,
            'no decision: {{reason}}',
          ],
        ],
      }),
    ],
  },
  {
    question: 'Which plan?',
    panels: [
      graph({
        title: 'Refused share by plan',
        what: 'Of the requests of a plan, those that were refused for their limits.',
        unit: 'percentunit',
        runbook: 'gatewayplanrefusals',
        queries: [[refusedShare('plan'), '{{plan}}']],
        alertAt: 0.3,
      }),
      graph({
        title: 'Keys refused, of those that ask',
        what: 'One client that never stops is one key. Many keys are a limit that is too low.',
        unit: 'none',
        runbook: 'gatewayplanrefusals',
        queries: [
          [`max by (plan) (gateway_keys_refused{${PLAN}})`, '{{plan}} refused'],
          [`max by (plan) (gateway_keys_asking{${PLAN}})`, '{{plan}} asking'],
        ],
      }),
      graph({
        title: 'Admitted by plan',
        what: 'Requests that took a token.',
        unit: 'reqps',
        runbook: 'a-bad-plan-change',
        queries: [[`sum by (plan) (gateway:decisions:rate1m{${PLAN},outcome="admitted"})`, '{{plan}}']],
      }),
      graph({
        title: '5xx by plan',
        what: 'Answers that are 5xx; none: before a key was known.',
        unit: 'reqps',
        runbook: 'gatewayerrorratiohigh',
        queries: [
          [
            `sum by (plan) (gateway:requests:rate1m{${GATEWAY},${FAILED}}) or 0 * sum by (plan) (gateway:requests:rate1m{${GATEWAY}})`,
            '{{plan}}',
          ],
        ],
      }),
      graph({
        title: 'Bans that run',
        what: 'As far as each gateway has heard of them.',
        unit: 'none',
        runbook: 'gatewaybansspike',
        queries: [[gauges('gateway_bans_active', 'instance'), '{{instance}}']],
      }),
      graph({
        title: 'Keys near their day limit',
        what: 'Keys that have used 80 % of their day.',
        unit: 'none',
        runbook: 'a-client-complains-of-429',
        queries: [[`max by (plan) (gateway_keys_near_day_limit{${PLAN}})`, '{{plan}}']],
      }),
    ],
  },
];
