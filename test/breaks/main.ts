import { spawnSync } from 'node:child_process';
import { cpSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { ROOT } from '../support/root.ts';
import { BREAKS, type Break } from './table.ts';

const HELP = `npm run breaks -- [--only <text>]

Applies each deliberate break of test/breaks/table.ts to a copy of this folder, one at a time, and runs the test that
must fail because of it. Exits with 1 if a break is not found by its test. Takes about half an hour in all.

  --only <text>  only breaks whose file or test has this text in its name
  --help         prints this
`;

const { values } = parseArgs({ options: { only: { type: 'string', default: '' }, help: { type: 'boolean' } } });
if (values.help) process.stdout.write(HELP);
else await main(BREAKS.filter(({ file, test }) => `${file} ${test}`.includes(values.only)));

async function main(breaks: readonly Break[]): Promise<void> {
  const copy = await mkdtemp(join(tmpdir(), 'animal-store-breaks-'));
  try {
    const files = spawnSync('git', ['ls-files', '-z'], { cwd: ROOT, encoding: 'utf8' })
      .stdout.split('\0')
      .filter(Boolean);
    for (const file of files) cpSync(join(ROOT, file), join(copy, file), { verbatimSymlinks: true });
    for (const modules of ['node_modules', 'test/node_modules']) symlinkSync(join(ROOT, modules), join(copy, modules));
    let found = 0;
    for (const [at, one] of breaks.entries()) {
      const result = resultOf(one, copy);
      if (result === 'found') found += 1;
      process.stdout.write(`${at + 1}. ${result}: ${one.file} > ${one.code.split('\n')[0]?.trim()} (${one.test})\n`);
    }
    process.stdout.write(`${found} of ${breaks.length} breaks are found.\n`);
    if (found < breaks.length) process.exitCode = 1;
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}

function resultOf({ file, code, broken, test }: Break, copy: string): string {
  const path = join(copy, file);
  const before = readFileSync(path, 'utf8');
  if (before.split(code).length !== 2) return 'NO SINGLE MATCH IN THE FILE';
  writeFileSync(
    path,
    before.replace(code, () => broken),
  );
  try {
    const options = ['run', '--config', 'test/vitest.config.ts', `test/${test}`, '--bail=1'];
    const { status, stdout } = spawnSync(join(copy, 'test/node_modules/.bin/vitest'), options, {
      cwd: copy,
      encoding: 'utf8',
    });
    if (status === 0) return 'NOT FOUND BY ITS TEST';
    return /[1-9]\d* failed/.test(stdout) ? 'found' : 'TEST NOT RUN';
  } finally {
    writeFileSync(path, before);
  }
}
