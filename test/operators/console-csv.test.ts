import { stringify } from 'csv-stringify/sync';
import { expect, test } from 'vitest';
import { asCsv } from '../../gateway/operators/console/csv.ts';

/** The console's own CSV, against the library that ctl uses. RFC 4180 asks for quotes around a single CR or LF too. */

const PARTS = [
  '',
  '=',
  '+',
  '-',
  '@',
  '\t',
  '\r',
  '\n',
  '\r\n',
  '"',
  ',',
  "'",
  ' ',
  'a',
  '1',
  '＝',
  '＋',
  '－',
  '＠',
  'ß',
];
const TEXTS = PARTS.flatMap((first) => PARTS.flatMap((second) => PARTS.map((third) => first + second + third)));

const HEAD = 'at,actor,action,target,via,changes,reason,requestId,token,id,targetName\r\n';
const ENTRY = { id: '1-0', at: '', action: 'key.change', target: '', targetName: undefined, via: 'api' } as const;

const own = (text: string): string =>
  asCsv([{ ...ENTRY, actor: text, reason: text, changes: [{ field: text, from: text, to: text }] }]);

const expected = (text: string): string =>
  HEAD +
  stringify([['', text, 'key.change', '', 'api', `${text} ${text} -> ${text}`, text, '', '', '1-0', '']], {
    escape_formulas: true,
    record_delimiter: 'windows',
    quote_record_delimiter: true,
  });

test('CSV fields are quoted and formulas escaped as csv-stringify does', () => {
  const different = TEXTS.filter((text) => own(text) !== expected(text));
  expect(different.slice(0, 3).map((text) => [own(text), expected(text)])).toEqual([]);
});
