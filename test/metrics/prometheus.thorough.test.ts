import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { readCoreSettings } from '../../core/config.ts';
import { startCore } from '../../core/core.ts';
import { createAuthority } from '../support/certificates.ts';
import { cleanUp } from '../support/clean-up.ts';
import { colourOf, DASHBOARD, filledIn, STATS } from '../support/dashboard.ts';
import { post, send } from '../support/http.ts';
import { readableLog } from '../support/log.ts';
import { Scrape, scrape } from '../support/metrics.ts';
import { ROOT, startService } from '../support/process.ts';
import { startPrometheus } from '../support/prometheus.ts';
import { ADMIN_TOKEN, temporaryFolder } from '../support/stack.ts';
import { BOUNDLESS, workersEnvironment } from '../support/workers.ts';

const WORDS = new Set('by without and or unless on ignoring offset bool group_left group_right'.split(' '));
/** The label of histogram buckets. */
const MADE = new Set(['le']);

/**
 * Finds the metrics in a PromQL expression, and the labels in its matchers and groupings. This is not a full parser,
 * but it suffices for our own expressions.
 */
function namedIn(expression: string) {
  const labels = new Set<string>();
  const matchers = /\{([^}]*)\}/g;
  const groupings = /\b(?:by|without|on|ignoring)\s*\(([^)]*)\)/g;
  for (const [, inside = ''] of expression.matchAll(matchers))
    for (const [, label] of inside.matchAll(/(\w+)\s*(?:=~|!~|!=|=)/g)) labels.add(label as string);
  for (const [, inside = ''] of expression.matchAll(groupings))
    for (const label of inside.split(',')) labels.add(label.trim());
  const rest = expression
    .replaceAll(matchers, ' ')
    .replaceAll(groupings, ' ')
    .replaceAll(/\[[^\]]*\]/g, ' ');
  // A name before a parenthesis is a function. A duration begins with a digit.
  const names = [...rest.matchAll(/(?<![\w:.])[a-zA-Z_:][\w:]*(?!\s*\(|[\w:])/g)].map(([name]) => name);
  return {
    metrics: names.filter((name) => !WORDS.has(name)),
    labels: [...labels].filter((label) => label !== '' && !MADE.has(label)),
  };
}

/**
 * Both services as in production, including two workers, some traffic, and a Prometheus that scrapes them. A gateway
 * without Redis only shows its metrics.
 */
const folder = await temporaryFolder();
const core = await startCore(
  readCoreSettings({ PORT: '0', DATABASE_URL: `sqlite:${folder}/store.db` }),
  readableLog().logger,
);
cleanUp(() => core.stop(0));
const { core: coreUrl = '' } = core.addresses;
const { certFile, keyFile, caFile } = await createAuthority(undefined, 365);
const ca = readFileSync(caFile);
const withTls = { TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile };
const { addresses } = await startService(
  'gateway/main.ts',
  await workersEnvironment({ CORE_URL: coreUrl, ...withTls }),
);
const gateway = { gateway: addresses.gateway ?? '', adminUrl: addresses.admin ?? '' };
const withoutRedis = await startService('gateway/main.ts', await workersEnvironment({ WORKERS: '1', REDIS_URL: '' }));
const issued = await post(`${gateway.adminUrl}/keys`, { name: 'test', ...BOUNDLESS }, { key: ADMIN_TOKEN });
const { key } = issued.json as { key: string };
await post(`${gateway.adminUrl}/backups`, { keys: 1 }, { key: ADMIN_TOKEN });
const ask = async () => {
  await send(`${gateway.gateway}/v1/pets`, { key, ca });
  await post(`${gateway.gateway}/v1/pets`, { name: 'Rex', categoryId: 1 }, { key, ca });
};
await ask();
const asking = setInterval(() => void ask().catch(() => {}), 100);
cleanUp(() => clearInterval(asking));
const prometheus = await startPrometheus({ gateway: [gateway.adminUrl], core: [coreUrl] });

interface Rule {
  readonly name: string;
  readonly query: string;
  readonly health: string;
  readonly type: 'recording' | 'alerting';
  readonly state?: string;
}

const queries = DASHBOARD.panels.flatMap(({ title, targets = [] }) =>
  targets.map(({ expr, legendFormat }) => ({ title, expr: filledIn(expr), legendFormat })),
);
const annotations = DASHBOARD.annotations.list.map(({ expr }) => expr);

/** Prometheus adds these to every series. */
const OF_TARGETS = ['job', 'instance'];
/** Series of Prometheus itself. */
const OF_PROMETHEUS = ['up', 'ALERTS'];
const OF_ALERTS = ['alertstate'];

async function rulesOf(): Promise<Rule[]> {
  const { groups } = (await prometheus.api('/rules')) as { groups: { rules: Rule[] }[] };
  return groups.flatMap(({ rules }) => rules);
}

/**
 * The unknown metrics and labels in a query: those that no service exposes, Prometheus does not add, and no recording
 * rule creates.
 */
function missing(expression: string, exposed: Scrape, recorded: ReadonlyMap<string, string>): string[] {
  const { metrics, labels } = namedIn(expression);
  const raw = metrics.flatMap((name) => (recorded.has(name) ? namedIn(recorded.get(name) as string).metrics : [name]));
  const unknown = raw.filter((name) => !OF_PROMETHEUS.includes(name) && exposed.series(name).length === 0);
  const known = new Set(raw.flatMap((name) => exposed.series(name)).flatMap((sample) => Object.keys(sample.labels)));
  return [...unknown, ...labels.filter((label) => !known.has(label) && ![...OF_TARGETS, ...OF_ALERTS].includes(label))];
}

async function exposedByAll(): Promise<Scrape> {
  const urls = [gateway.adminUrl, withoutRedis.addresses.admin, coreUrl];
  const texts = await Promise.all(urls.map(async (url) => (await send(`${url}/metrics`)).text));
  return new Scrape(texts.join('\n'));
}

describe('with a real Prometheus', () => {
  test('both services are up', async () => {
    const up = async () => (await prometheus.query('up == 1')).map(({ metric }) => metric.job).sort();
    await expect.poll(up, { timeout: 30_000 }).toEqual(['core', 'gateway']);
  });

  test('every recording rule evaluates to numbers, and no alert fires in a healthy system', async () => {
    const recording = (await rulesOf()).filter(({ type }) => type === 'recording');
    expect(recording.length).toBeGreaterThanOrEqual(10);
    for (const { name } of recording)
      await expect
        .poll(async () => (await prometheus.query(name)).map(({ value }) => Number(value[1])).some(Number.isFinite), {
          timeout: 30_000,
          message: name,
        })
        .toBe(true);
    const rules = await rulesOf();
    expect(rules.filter(({ health }) => health !== 'ok')).toEqual([]);
    expect(rules.filter(({ state }) => state === 'firing')).toEqual([]);
  });

  test.for(queries)('$title: the query $expr returns numbers', async ({ expr, legendFormat }) => {
    const answers = async () => await prometheus.query(expr);
    await expect.poll(async () => (await answers()).length, { timeout: 30_000 }).toBeGreaterThan(0);
    const [first] = await answers();
    const inLegend = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label]) => label as string);
    // The series of the primary process has no label `worker`. Every series has all the other labels in its legend.
    for (const label of inLegend.filter((name) => name !== 'worker')) expect(first?.metric).toHaveProperty(label);
  });

  test('deploy/METRICS.md lists exactly our metrics', async () => {
    const ours = (await exposedByAll()).samples.filter(({ name }) => /^(gateway|core)_/.test(name));
    const families = ours.map(({ name, labels }) =>
      'le' in labels || /_(sum|count)$/.test(name) ? name.replace(/_(bucket|sum|count)$/, '') : name,
    );
    const rows = readFileSync(join(ROOT, 'deploy/METRICS.md'), 'utf8').match(/^\| `(gateway|core)_.*$/gm) ?? [];
    const documented = rows.flatMap((row) =>
      [...(row.split('|')[1] ?? '').matchAll(/`(\w+)`/g)].map(([, name]) => name),
    );
    expect([...new Set(families)].sort()).toEqual(documented.sort());
  });

  test('every metric named in the runbook exists', async () => {
    await expect.poll(async () => (await scrape(gateway.adminUrl)).sum('gateway_workers_serving')).toBe(2);
    const names = new Set((await exposedByAll()).samples.map(({ name }) => name.replace(/_(bucket|sum|count)$/, '')));
    for (const { name } of await rulesOf()) names.add(name);
    const runbook = readFileSync(join(ROOT, 'deploy/RUNBOOK.md'), 'utf8');
    const documented = [...runbook.matchAll(/`((?:gateway|core|nodejs|process)[_:][\w:]+)`/g)].map(
      ([, name]) => name as string,
    );
    expect(documented.length).toBeGreaterThan(15);
    expect(documented.filter((name) => !names.has(name))).toEqual([]);
  });

  test('every name and label in queries and rules exists on a running gateway or core', async () => {
    await expect.poll(async () => (await scrape(gateway.adminUrl)).sum('gateway_workers_serving')).toBe(2);
    const rules = await rulesOf();
    const recorded = new Map(rules.filter(({ type }) => type === 'recording').map(({ name, query }) => [name, query]));
    const exposed = await exposedByAll();
    const expressions = [...queries.map(({ expr }) => expr), ...annotations, ...rules.map(({ query }) => query)];
    expect(expressions.length).toBeGreaterThan(40);
    expect(missing('sum by (nobody) (nothing{nowhere="x"})', exposed, recorded)).toEqual([
      'nothing',
      'nowhere',
      'nobody',
    ]);
    const faults = expressions.map((expr) => [expr, missing(expr, exposed, recorded)] as const);
    expect(faults.filter(([, names]) => names.length > 0)).toEqual([]);
  });

  test('no stat is red in a healthy system, and the stat of 5xx answers is red without a core', async () => {
    const coloursOf = async () => {
      const shown = STATS.map(async (panel) => {
        const [answer] = await prometheus.query(filledIn(panel.targets?.[0]?.expr ?? ''));
        return [panel.title, colourOf(panel, Number(answer?.value[1]))] as const;
      });
      return Object.fromEntries(await Promise.all(shown));
    };
    // Latencies are left out, because they are high on a busy machine. A pause of the start is shown for ten seconds.
    const facts = Object.entries(await coloursOf()).filter(([title]) => !/^p99|pause$/.test(title));
    expect(facts.filter(([, colour]) => colour === 'red')).toEqual([]);
    const pause = async () => (await coloursOf())['Event loop, longest pause'];
    await expect.poll(pause, { timeout: 60_000 }).toMatch(/green|yellow/);
    await core.stop(0);
    await expect
      .poll(async () => await coloursOf(), { timeout: 60_000 })
      .toMatchObject({ '5xx': 'red', 'Cores down': 'red' });
  });
});

test('the dashboard has panels with unique ids, each with queries', () => {
  const panels = DASHBOARD.panels.filter(({ type }) => type !== 'row');
  expect(panels.length).toBeGreaterThan(20);
  expect(new Set(DASHBOARD.panels.map(({ id }) => id)).size).toBe(DASHBOARD.panels.length);
  for (const { targets = [] } of panels) expect(targets.length).toBeGreaterThan(0);
});
