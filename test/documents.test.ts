import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { Marked } from 'marked';
import { getHeadingList, gfmHeadingId } from 'marked-gfm-heading-id';
import { expect, test } from 'vitest';
import { SETTINGS_FILE, withTables } from '../deploy/generate.ts';
import { ROOT } from './support/process.ts';

/** Generated tables, links and commands in documents agree with the files. */

const FILES = [
  'README.md',
  ...['core', 'deploy', 'gateway', 'shared', 'test'].flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
      .filter((file) => !file.includes('node_modules/'))
      .map((file) => join(folder, file)),
  ),
];
const DOCUMENTS = FILES.filter((file) => file.endsWith('.md'));
const read = (file: string) => readFileSync(join(ROOT, file), 'utf8');

test.for(['CORE_TIMEOUT_MS', 'DATABASE_URL', 'ban_seconds'])(
  'the table with %s is up to date: `npm run generate` would not change it',
  (row) => {
    const text = readFileSync(SETTINGS_FILE, 'utf8');
    expect(withTables(text)).toBe(text);
    const cut = text.replace(new RegExp(`\\| \`${row}\`.*\\n`), '');
    expect(cut).not.toBe(text);
    expect(withTables(cut)).toBe(text);
  },
);

/** The links and images in a document, except links to other sites. */
const linksOf = (document: string): string[] =>
  [...read(document).matchAll(/\]\(([^)\s]+)\)/g)].map(([, link = '']) => link).filter((link) => !/^\w+:/.test(link));

function anchorsOf(document: string): string[] {
  new Marked(gfmHeadingId(), { async: false }).parse(read(document));
  return getHeadingList().map(({ id }) => id);
}

test('every link in a document leads to an existing file and heading', () => {
  const links = DOCUMENTS.flatMap((document) => linksOf(document).map((link) => [document, link] as const));
  expect(links.length).toBeGreaterThan(60);
  const broken = links.filter(([document, link]) => {
    const [path = '', anchor] = link.split('#');
    const file = path === '' ? document : join(dirname(document), path);
    return !existsSync(join(ROOT, file)) || (anchor !== undefined && !anchorsOf(file).includes(anchor));
  });
  expect(broken).toEqual([]);
});

test('every link from a failed request in the console leads to an existing heading of the runbook', () => {
  const words = read('gateway/operators/console/requests.ts').split('const OUTCOMES')[1] ?? '';
  const anchors = [...words.matchAll(/^ {2}\w+: (?:\['[^']+', )?'([\w-]+)'\]?,$/gm)].map(([, anchor]) => anchor);
  expect(anchors.length).toBeGreaterThan(8);
  expect(anchorsOf('deploy/RUNBOOK.md')).toEqual(expect.arrayContaining(anchors));
});

test('every command in the table of promises runs an existing test or program', () => {
  const [, ...rows] = read('test/promises.csv').trimEnd().split('\n');
  const commands = rows.flatMap((row) => {
    const found = [
      ...row.matchAll(/npm test -- [\w./-]+|npm run test:containers -- [\w-]+|npm run soak|npx node \S+\.ts/g),
    ];
    expect([row, found.length > 0]).toEqual([row, true]);
    return found.map(([command]) => command);
  });
  const tests = FILES.filter((file) => file.endsWith('.test.ts'));
  const runs = (command: string): boolean => {
    const name = command.split(' ').at(-1) ?? '';
    if (command.startsWith('npx node')) return FILES.includes(name);
    if (command === 'npm run soak') return FILES.includes('test/soak/run.ts');
    return tests.some(
      (file) => file.includes(name) && file.startsWith('test/containers/') === command.includes('containers'),
    );
  };
  expect(commands.length).toBeGreaterThan(60);
  expect(commands.filter((command) => !runs(command))).toEqual([]);
});
