import { cpSync, globSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ROOT, startProcess } from '../support/process.ts';
import { startStack, temporaryFolder } from '../support/stack.ts';

/** The store client as a package, installed into an empty project. */

const CLIENT = 'shared/client';

/** Copies the sources of the package, because packing writes files beside them. */
async function copyOfSources(): Promise<string> {
  const folder = await temporaryFolder();
  for (const name of ['shared', 'package.json', 'tsconfig.json'])
    cpSync(join(ROOT, name), join(folder, name), { recursive: true });
  for (const name of ['node_modules', 'test']) symlinkSync(join(ROOT, name), join(folder, name));
  return folder;
}

async function run(command: string, words: readonly string[], cwd: string, env = process.env): Promise<string> {
  const { code, out, err } = await startProcess(command, words, env, { cwd }).ended;
  if (code !== 0) throw new Error(`${command} ${words.join(' ')}: ${out}${err}`);
  return out;
}

const filesIn = (folder: string) => readdirSync(join(folder, CLIENT), { recursive: true, encoding: 'utf8' }).sort();

const JAVASCRIPT = `
import { createStoreClient, StoreError } from 'animal-store-client';

const store = createStoreClient({ url: process.env.STORE_URL, token: process.env.API_KEY });
const { id } = await store.createPet({ name: 'Rex', categoryId: 1 });
const { pets } = await store.listPets({ status: 'available' });
console.log(pets.map(({ name }) => name).join(), typeof id);
try {
  await store.getPet(id + 1n);
} catch (fault) {
  console.log(fault instanceof StoreError && fault.code);
}
await store.close();
`;

const TYPESCRIPT = `
import { createStoreClient, type PetPage, StoreError, type StoreErrorCode } from 'animal-store-client';

const { STORE_URL = '', API_KEY } = process.env;
const store = createStoreClient({ url: STORE_URL, token: API_KEY });
const { id }: { readonly id: bigint } = await store.createPet({ name: 'Cleo', categoryId: 1, status: 'sold' });
const { pets }: PetPage = await store.listPets({ status: 'sold' });
console.log(pets.map(({ name }) => name).join(), typeof id);
const code: StoreErrorCode | undefined = await store.getPet(id + 1n).then(
  () => undefined,
  (fault: unknown) => (fault instanceof StoreError ? fault.code : undefined),
);
console.log(code);
// @ts-expect-error a category is required
store.createPet({ name: 'x' }).catch((fault: StoreError) => console.log(fault.code));
await store.close();
`;

const TSCONFIG = { strict: true, noEmit: true, target: 'es2024', module: 'nodenext', types: ['node'] };

test('the packed client is JavaScript with types and runs in an empty project', async () => {
  const sources = await copyOfSources();
  const before = filesIn(sources);
  const project = await temporaryFolder();
  const packed = await run('npm', ['pack', '--silent', '--pack-destination', project], join(sources, CLIENT));
  expect(filesIn(sources)).toEqual(before);

  writeFileSync(join(project, 'package.json'), '{"type":"module"}');
  await run('npm', ['install', '--prefer-offline', '--no-audit', '--no-fund', packed.trim()], project);
  const own = join(project, 'node_modules/animal-store-client');
  const isSource = (file: string) => file.endsWith('.ts') && !file.endsWith('.d.ts');
  const files = globSync('**/*.*', { cwd: own });
  expect(files).toContain('dist/client/client.js');
  expect(files.filter(isSource)).toEqual([]);

  const stack = await startStack();
  const env = { STORE_URL: stack.gateway, API_KEY: await stack.issueKey() };
  writeFileSync(join(project, 'use.mjs'), JAVASCRIPT);
  expect(await run(process.execPath, ['use.mjs'], project, env)).toBe('Rex bigint\nnot_found\n');

  // A TypeScript project must install the types of Node itself.
  mkdirSync(join(project, 'node_modules/@types'), { recursive: true });
  for (const name of ['@types/node', 'undici-types'])
    cpSync(join(ROOT, 'node_modules', name), join(project, 'node_modules', name), { recursive: true });
  writeFileSync(join(project, 'use.ts'), TYPESCRIPT);
  writeFileSync(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions: TSCONFIG, files: ['use.ts'] }));
  expect(await run(join(ROOT, 'test/node_modules/.bin/tsc'), ['-p', '.'], project)).toBe('');
  expect(await run(process.execPath, ['use.ts'], project, env)).toBe('Cleo bigint\nnot_found\ninvalid_request\n');
});

test('the packed client requires the package versions that it is tested with', () => {
  const [own, whole] = [CLIENT, '.'].map((folder) =>
    JSON.parse(readFileSync(join(ROOT, folder, 'package.json'), 'utf8')),
  );
  expect(own.version).toBe(whole.version);
  expect(whole.dependencies).toMatchObject(own.dependencies);
});
