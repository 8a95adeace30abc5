import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { operatorOf } from '../support/ctl.ts';
import { send } from '../support/http.ts';
import { type Ended, startProcess } from '../support/process.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { type Stack, startStack, temporaryFolder } from '../support/stack.ts';

/** Tests the script that compose and Kubernetes run, in a temporary folder. */

vi.setConfig({ testTimeout: 90_000 });

const run = (stack: Pick<Stack, 'adminUrl'>, folder: string, ...words: string[]): Promise<Ended> =>
  startProcess('sh', ['deploy/backup/backup.sh', folder, '3', ...words], operatorOf(stack)).ended;
const backupsIn = async (folder: string) => (await readdir(folder)).filter((name) => name.startsWith('keys-')).sort();
const OLD = ['keys-2026-01-01.jsonl', 'keys-2026-01-02.jsonl', 'keys-2026-01-03.jsonl'];

async function withOldOnes(): Promise<string> {
  const folder = join(await temporaryFolder(), 'backups');
  await run({ adminUrl: 'http://127.0.0.1:1' }, folder);
  for (const name of OLD) await writeFile(join(folder, name), name);
  return folder;
}

test('each day gets one backup that only its owner can read; the oldest is deleted, the newest restored', async () => {
  const [stack, folder] = [await startStack(), await withOldOnes()];
  const key = await stack.issueKey();
  expect(await run(stack, folder)).toMatchObject({ code: 0, err: '' });
  const names = await backupsIn(folder);
  expect(names).toEqual([...OLD.slice(1), expect.stringMatching(/^keys-\d{4}-\d\d-\d\d\.jsonl$/)]);
  const today = join(folder, names[2] as string);
  expect((await stat(today)).mode & 0o777).toBe(0o600);
  expect((await stat(folder)).mode & 0o777).toBe(0o700);
  expect(await readdir(folder)).not.toContain('draft');
  expect(await readdir(folder)).toContain('looked');
  const text = await readFile(today, 'utf8');
  expect(text).toContain(`{"id":"${idOf(key)}",`);

  await stack.issueKey();
  expect((await run(stack, folder)).code).toBe(0);
  expect(await readFile(today, 'utf8')).toBe(text);

  const empty = await startStack();
  const restored = await run(empty, folder, 'restore');
  expect([restored.code, restored.out]).toEqual([0, expect.stringContaining('Keys restored: 1.')]);
  expect((await send(`${empty.gateway}/v1/pets`, { key })).status).toBe(200);

  await writeFile(today, text.replace(/"at":"[^"]*"/, '"at":"2020-01-01T00:00:00Z"'));
  expect((await run(empty, folder, 'restore')).code).toBe(4);
  expect((await run(empty, folder, 'restore', '--any-age')).code).toBe(0);
});

test('a backup that left out a key is kept, and the script fails', async () => {
  const { url, redis } = await emptyDatabase();
  const [stack, folder] = [await startStack({ REDIS_URL: url, REDIS_TIMEOUT_MS: '5000' }), await withOldOnes()];
  const [id] = [idOf(await stack.issueKey()), await stack.issueKey()];
  await redis.hset(`gateway:key:{${id}}`, `secret:${'a'.repeat(43)}`, 'typed123 - root - 0 typed');
  const { code, err } = await run(stack, folder);
  expect([code, err]).toEqual([1, expect.stringContaining(`Left out: ${id}: One of its secrets cannot be read.`)]);
  const [, , , today = ''] = await backupsIn(folder);
  expect(await readFile(join(folder, today), 'utf8')).toContain('{"end":true,"keys":1}');
  expect((await run(stack, folder)).code).toBe(0);
});

test('an empty or failed backup does not replace an older one', async () => {
  const [stack, folder] = [await startStack(), await withOldOnes()];
  expect((await readdir(folder)).includes('looked')).toBe(false);
  expect((await run({ adminUrl: 'http://127.0.0.1:1' }, folder)).code).not.toBe(0);
  expect(await backupsIn(folder)).toEqual(OLD);
  expect((await readdir(folder)).includes('looked')).toBe(false);
  expect(await run(stack, folder)).toMatchObject({ code: 0, err: '' });
  expect((await readdir(folder)).sort()).toEqual([...OLD, 'looked']);
});
