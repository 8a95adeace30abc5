import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ALERT_NAMES } from '../support/alerts.ts';
import { ROOT } from '../support/process.ts';

test('the table of warnings lists every log message above info', () => {
  const sources = ['gateway', 'core', 'shared'].flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts') && !/(^|\/)(cli|console)\//.test(name))
      .map((name) => readFileSync(join(ROOT, folder, name), 'utf8')),
  );
  // A logging call, up to the end of its last argument: a string, or a name that is listed below.
  const calls = sources.flatMap((text) => [
    ...text.matchAll(/[lL]ogger\s*\.(?:warn|error|fatal)\(([\s\S]*?)\)(?:;|,?\n|\))/g),
  ]);
  const texts = calls.map(([, inside = '']) => /'([^']+)',?\s*$/.exec(inside)?.[1]);
  const named = calls
    .filter((_, at) => texts[at] === undefined)
    .map(([, inside = '']) => /(\w+)\s*$/.exec(inside)?.[1]);
  expect(named.sort()).toEqual(['message', 'message', 'what']);
  const ends = sources.flatMap((text) => [...text.matchAll(/\bdie\([\s\S]*?'([^']+)'\)/g)].map(([, what]) => what));
  const rows = readFileSync(join(ROOT, 'deploy/METRICS.md'), 'utf8').split('## Warnings in the log')[1] ?? '';
  const documented = [...rows.matchAll(/^\| `([^`]+)` \| (.+) \|$/gm)];
  expect([...new Set([...texts.filter((text) => text !== undefined), ...ends, 'operator request'])].sort()).toEqual(
    documented.map(([, line]) => line).sort(),
  );
  for (const [row, , alert = ''] of documented) {
    const names = [...alert.matchAll(/`((?:Gateway|Core|Log)\w+)`/g)].map(([, name = '']) => name);
    expect([row, names.length > 0 || alert.includes('none: ')]).toEqual([row, true]);
    expect(ALERT_NAMES).toEqual(expect.arrayContaining(names));
  }
});
