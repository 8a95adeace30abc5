import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { describeDashboard } from '../../deploy/grafana/dashboard.ts';
import { ROWS } from '../../deploy/grafana/rows.ts';
import { colourOf, DASHBOARD, DASHBOARD_TEXT, STATS } from '../support/dashboard.ts';
import { ROOT } from '../support/process.ts';

const runbook = readFileSync(join(ROOT, 'deploy/RUNBOOK.md'), 'utf8');
const anchors = [...runbook.matchAll(/^#+ (.+)$/gm)].map(([, title = '']) => title.toLowerCase().replaceAll(' ', '-'));

/** For each stat, a value on a normal day and one in an outage. */
const GOOD_AND_BAD: Readonly<Record<string, readonly [good: number, bad: number]>> = {
  '5xx': [0.001, 1],
  'p99 of a request': [0.02, 5],
  'Keys refused': [0.01, 0.5],
  'Unknown keys': [0.01, 1],
  'Gateways down': [0, 1],
  'Nodes unavailable': [0, 1],
  'p99 of a decision': [0.004, 0.25],
  'Memory used': [0.3, 0.95],
  'Time since the last backup': [40_000, 100_000],
  'Rejected plan values': [0, 1],
  'Plan table readable': [1, 0],
  'Deadlines missed': [0, 20],
  'Cores ready': [1, 0.5],
  'Cores down': [0, 1],
  '5xx from cores': [0.001, 1],
  'p99 of a core response': [0.02, 5],
  'Store failures': [0, 0.1],
  'Unresolved core names': [0, 1],
  'Requests shed': [0, 3],
  'Connections refused': [0, 3],
  'Event loop, longest pause': [0.03, 0.7],
  'File descriptors': [0.02, 0.95],
  'Worker crashes': [0, 1],
  'Log lines lost': [0, 10],
};

test('the generated dashboard matches its source', () => {
  expect(JSON.parse(DASHBOARD_TEXT)).toEqual(JSON.parse(JSON.stringify(describeDashboard(ROWS))));
});

test('the rows of the dashboard are the questions of an on-call engineer, in order', () => {
  const rows = DASHBOARD.panels.filter(({ type }) => type === 'row').map(({ title }) => title);
  expect(rows).toEqual(['Are clients affected?', 'Which plan?', 'Redis?', 'Cores?', 'Saturation?']);
});

test('datasource, gateway and plan are selectable, and every query uses the selected datasource', () => {
  expect(DASHBOARD.templating.list.map(({ name, type }) => `${name} ${type}`)).toEqual([
    'datasource datasource',
    'instance query',
    'plan query',
    'console constant',
    'runbook constant',
  ]);
  const sources = [...DASHBOARD_TEXT.matchAll(/"uid":"([^"]+)"/g)].map(([, uid]) => uid);
  expect([...new Set(sources)].sort()).toEqual(['$datasource', DASHBOARD.uid].sort());
});

test('every stat is green on a normal day and red in an outage, except the number of requests', () => {
  const coloured = STATS.filter(({ title }) => title !== 'Requests');
  expect(coloured.map(({ title }) => title)).toEqual(Object.keys(GOOD_AND_BAD));
  const seen = coloured.map((panel) => [
    panel.title,
    ...(GOOD_AND_BAD[panel.title] ?? []).map((value) => colourOf(panel, value)),
  ]);
  expect(seen).toEqual(coloured.map(({ title }) => [title, 'green', 'red']));
});

test('every panel has a unit and a description, and links to a section of the runbook', () => {
  for (const { type, title, description = '', links = [], fieldConfig } of DASHBOARD.panels) {
    if (type === 'row') continue;
    expect([title, fieldConfig?.defaults.unit]).toEqual([title, expect.stringMatching(/^[a-z]+$/)]);
    expect([title, description.length > 10]).toEqual([title, true]);
    const [, anchor = ''] = /^\$\{runbook\}#(.+)$/.exec(links[0]?.url ?? '') ?? [];
    expect(anchors, title).toContain(anchor);
  }
});

test('panels of the dashboard do not overlap', () => {
  const places = DASHBOARD.panels.map(({ title, gridPos }) => {
    const { x, y, w, h } = gridPos;
    return { title, x, y, end: x + w, below: y + h };
  });
  expect(places.filter(({ end }) => end > 24)).toEqual([]);
  const overlapping = places.filter((one, at) =>
    places
      .slice(at + 1)
      .some((other) => one.x < other.end && other.x < one.end && one.y < other.below && other.y < one.below),
  );
  expect(overlapping).toEqual([]);
});

test('no query of the dashboard names a key', () => {
  expect(DASHBOARD_TEXT).not.toMatch(/key_?id/i);
});
