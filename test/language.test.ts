import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ROOT } from './support/process.ts';

/** Words that documents, messages and help texts must not use, and what to use instead. Each thing has one word. */

const GLOSSARY: readonly (readonly [not: RegExp, instead: string])[] = [
  [/\b(?:tells?|told|telling)\b/i, 'report, return, send, record, log, notify'],
  [/\bmend(?:s|ed|ing)?\b/i, 'fix'],
  [/\banimals?\b(?![ -]store)/i, 'pets'],
  [/\b(?:un)?proven\b|\bbelieved?s?\b/i, 'verified, trusted'],
  [/(?<!ctl |--json |[./])\bactivity\b(?!\.)|\btrail\b/i, 'audit log'],
  [/\b(?:keys?|tokens?|secrets?|certificates?) (?:has |have |is |are )?end(?:s|ed)?\b/i, 'revoke, expire'],
  [/\bend (?:a|the|of a|of the) (?:key|token|secret|certificate)\b|\bend tokens\b/i, 'revoke, expire'],
  [/\bgood for\b/i, 'scope'],
  [/\bthorough(?:ly)?\b|\b(?:of|at) a desk\b/i, 'full tests, quick tests'],
  [/\bnobody has got\b|\bis no good\b|\bare no good\b/i, 'invalid, unclaimed'],
];

const faultsOf = (text: string): string[] =>
  GLOSSARY.flatMap(([not, instead]) => {
    const [found] = not.exec(text) ?? [];
    return found === undefined ? [] : [`“${found}” in “${text.trim().slice(0, 120)}”: ${instead}`];
  });

const filesIn = (folder: string, ending: RegExp): string[] =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((file) => ending.test(file) && !file.includes('node_modules/') && !file.endsWith('.generated.d.ts'))
    .map((file) => join(folder, file));
const read = (file: string) => readFileSync(join(ROOT, file), 'utf8');

/** The paragraphs and table rows of a document, without code. */
const proseOf = (document: string): string[] =>
  read(document)
    .replaceAll(/^```[\s\S]*?^```$|^ {4}.*$|`[^`]*`|\]\([^)]*\)/gm, ' ')
    .split(/\n\n|\n(?=[|*#])/);

const COMMENT_OR_LITERAL = /\/\*[\s\S]*?\*\/|\/\/.*|'((?:[^'\\\n]|\\.)*)'|"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`/g;

/** The strings in a source file: literals of more than one word. */
const textsOf = (file: string): string[] =>
  [...read(file).matchAll(COMMENT_OR_LITERAL)]
    .map(([, single, double, template]) => single ?? double ?? template?.replaceAll(/\$\{[^{}]*\}/g, '') ?? '')
    .filter((text) => /\w \w/.test(text));

test('documents use the words of the glossary', () => {
  const documents = [
    'README.md',
    ...['core', 'deploy', 'gateway', 'test'].flatMap((folder) => filesIn(folder, /\.md$/)),
  ];
  expect(documents.length).toBeGreaterThan(10);
  const texts = [
    ...documents.flatMap(proseOf),
    ...read('test/promises.csv')
      .replaceAll(/npm test -- \S+/g, '')
      .split('\n'),
  ];
  expect(texts.flatMap(faultsOf)).toEqual([]);
});

test('manifests and alerts use the words of the glossary', () => {
  const files = filesIn('deploy', /\.(?:ya?ml|conf|cfg|sh)$/);
  expect(files.length).toBeGreaterThan(20);
  expect(files.flatMap((file) => read(file).split('\n')).flatMap(faultsOf)).toEqual([]);
});

test('messages and help texts use the words of the glossary', () => {
  const sources = ['core', 'deploy', 'gateway', 'shared'].flatMap((folder) => filesIn(folder, /\.ts$/));
  const texts = sources.flatMap(textsOf);
  expect(texts.length).toBeGreaterThan(1_000);
  expect(texts.flatMap(faultsOf)).toEqual([]);
});
