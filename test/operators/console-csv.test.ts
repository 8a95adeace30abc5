import { stringify } from 'csv-stringify/sync';
import { expect, test } from 'vitest';
import type { ActivityView } from '../../gateway/operators/api/answers.ts';
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

test('every text is quoted, and kept from being a formula, as ctl does it', () => {
  const entries = TEXTS.map(
    (text): ActivityView => ({
      id: '1-0',
      at: '2026-11-25T00:00:00.000Z',
      actor: text,
      action: 'key.change',
      target: '000000000000',
      targetName: undefined,
      reason: text,
      via: 'api',
      changes: [{ field: text, from: text, to: text }],
    }),
  );
  const rows = entries.map(({ at, actor, action, target, via, reason, id }) => [
    ...[at, actor, action, target, via, `${actor} ${actor} -> ${actor}`, reason],
    ...['', '', id, ''],
  ]);
  const head = 'at,actor,action,target,via,changes,reason,requestId,token,id,targetName\r\n';
  expect(asCsv(entries)).toBe(
    head + stringify(rows, { escape_formulas: true, record_delimiter: 'windows', quote_record_delimiter: true }),
  );
});

test('changes are written as ctl writes them', () => {
  const entry = { id: '1-0', at: '', actor: '', action: 'key.change', target: '', reason: '', via: 'api' } as const;
  const changes = [
    { field: 'a', to: '1' },
    { field: 'b', from: '2' },
    { field: 'c', from: '3', to: '4' },
    { field: 'd' },
  ];
  const [, row] = asCsv([{ ...entry, targetName: 'n', requestId: 'r', token: 't', changes }]).split('\r\n');
  expect(row).toBe(',,key.change,,api,a 1; b 2 -> none; c 3 -> 4; d ,,r,t,1-0,n');
});
