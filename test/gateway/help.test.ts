import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { CoreSettings } from '../../core/config.ts';
import { LOCAL_PROGRAM } from '../../deploy/local-settings.ts';
import { GatewaySettings } from '../../gateway/config.ts';
import { helpText, settingRows } from '../../shared/process/help.ts';
import { startProcess } from '../support/process.ts';
import { temporaryFolder } from '../support/stack.ts';

test.for([
  ['gateway/main.ts', '--help', GatewaySettings.shape],
  ['gateway/main.ts', '-h', GatewaySettings.shape],
  ['core/main.ts', '--help', CoreSettings.shape],
  ['core/main.ts', '-h', CoreSettings.shape],
  ['deploy/local.ts', '--help', LOCAL_PROGRAM.settings],
  ['deploy/local.ts', '-h', LOCAL_PROGRAM.settings],
] as const)(
  '%s %s prints usage and settings but starts nothing, even with invalid settings and arguments',
  async ([main, option, shape]) => {
    const DATA_DIR = join(await temporaryFolder(), 'new');
    const environment = { DATA_DIR, DATABASE_URL: `sqlite:${DATA_DIR}/store.db`, LOG_LEVEL: 'loud' };
    const { code, out, err } = await startProcess(process.execPath, [main, '--prot', option], environment).ended;
    expect({ code, err, started: existsSync(DATA_DIR) }).toEqual({ code: 0, err: '', started: false });
    expect(out).toMatch(/^Usage: /m);
    const rows = [...out.matchAll(/^([A-Z_]+) +(\S+) +\S/gm)].map(([, name, defaultValue]) => [name, defaultValue]);
    expect(rows).toEqual(settingRows(shape).map(([name, defaultValue]) => [name, defaultValue]));
  },
);

test.for([
  [undefined, 100],
  [200, 100],
  [100, 100],
  [80, 80],
  [40, 80],
])(
  'on a terminal with %s columns the help table is at most %s wide, and all meanings are aligned',
  ([columns, width]) => {
    const lines = helpText(LOCAL_PROGRAM, columns).split('\n');
    expect(Math.max(...lines.map(({ length }) => length))).toBeLessThanOrEqual(width as number);
    const head = lines.findIndex((line) => line.startsWith('setting'));
    const table = lines.slice(head, lines.indexOf('', head));
    const start = table[0]?.indexOf('meaning') ?? 0;
    for (const line of table) expect([line[start - 1], line[start]]).toEqual([' ', expect.stringMatching(/\S/)]);
    const words = table
      .slice(1)
      .map((line) => line.slice(start))
      .join(' ');
    expect(words).toBe(
      settingRows(LOCAL_PROGRAM.settings)
        .map(([, , meaning]) => meaning.replaceAll('`', ''))
        .join(' '),
    );
  },
);
