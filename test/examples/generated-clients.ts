import { symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { descriptionFile } from '../support/description.ts';
import { ROOT, startProcess } from '../support/process.ts';
import { temporaryFolder } from '../support/stack.ts';

/** Clients that third-party generators create from the API's description, each in its own folder. */

const MODULES = join(import.meta.dirname, 'node_modules');
const DESCRIPTION = await descriptionFile();

export interface Generator {
  readonly name: string;
  /** A module that writes the client into its working folder. */
  readonly generate: string;
  /** A module that uses the client. */
  readonly use: string;
}

/** TypeScript 7 has no compiler API, so generators that need it get TypeScript 5. */
const WITH_COMPILER = `
import { registerHooks } from 'node:module';
registerHooks({
  resolve: (specifier, context, next) => specifier === 'typescript'
    ? { url: ${JSON.stringify(`file://${ROOT}/test/examples/typescript-5.ts`)}, shortCircuit: true }
    : next(specifier, context),
});`;

const IMPORTS = `
import { patientFetch } from '${ROOT}/test/examples/patient-fetch.ts';
import { useStore } from '${ROOT}/test/support/use-store.ts';
const { STORE_URL = '', API_KEY = '' } = process.env;`;

/** A module that writes the types that openapi-typescript generates from a description. */
export function typesOf(description: string, target: string): string {
  return `${WITH_COMPILER}
import { writeFileSync } from 'node:fs';
const { default: openapiTypes, astToString } = await import('openapi-typescript');
writeFileSync('${target}', astToString(await openapiTypes(new URL('file://${description}'))));`;
}

const HEY_API: Generator = {
  name: '@hey-api/openapi-ts',
  generate: `${WITH_COMPILER}
const { createClient } = await import('@hey-api/openapi-ts');
const output = { path: 'client', importFileExtension: '.ts' };
await createClient({ input: '${DESCRIPTION}', output, logs: { level: 'silent', file: false } });`,
  use: `${IMPORTS}
import { client } from './client/client.gen.ts';
import { createPet, getLimits, getPet, listPets } from './client/sdk.gen.ts';
client.setConfig({ baseUrl: \`\${STORE_URL}/v1\`, auth: API_KEY, fetch: patientFetch as typeof fetch });
await useStore({
  create: async (body) => (await createPet({ body })).data,
  get: async (petId) => (await getPet({ path: { petId } })).data,
  list: async () => (await listPets({ query: { limit: 100 } })).data,
  limits: async () => (await getLimits()).data,
});`,
};

const orval = (client: string, target: string) =>
  `await orval.generate({ input: '${DESCRIPTION}', output: { target: '${target}', client: '${client}', baseUrl: \`\${process.env.STORE_URL}/v1\` } });`;

const ORVAL_CLIENT = `
const plainFetch = fetch;
globalThis.fetch = async (...call) => {
  for (;;) {
    const response = await plainFetch(...call);
    if (response.status !== 429) return response;
    await new Promise((wait) => setTimeout(wait, 1_000 * Number(response.headers.get('retry-after'))));
  }
};
const init = { headers: { authorization: \`Bearer \${API_KEY}\` } };
type Any = { readonly status: number; readonly data: unknown };
function dataOf<A extends Any, S extends A['status']>(answer: A, wanted: S): Extract<A, { status: S }>['data'] {
  if (answer.status !== wanted) throw new Error(JSON.stringify(answer.data));
  return answer.data;
}`;

/** A client that uses fetch, whose values are also checked with zod. */
const ORVAL: Generator = {
  name: 'orval',
  generate: `import orval from 'orval';\n${orval('fetch', 'client.ts')}\n${orval('zod', 'checks.ts')}`,
  use: `${IMPORTS}
import * as checks from './checks.ts';
import { createPet, getLimits, getPet, listPets } from './client.ts';
${ORVAL_CLIENT}
await useStore({
  create: async (pet) => checks.getPetResponse.parse(dataOf(await createPet(checks.createPetBody.parse(pet), init), 201)),
  get: async (petId) => checks.getPetResponse.parse(dataOf(await getPet(petId, init), 200)),
  list: async () => checks.listPetsResponse.parse(dataOf(await listPets({ limit: 100 }, init), 200)),
  limits: async () => checks.getLimitsResponse.parse(dataOf(await getLimits({}, init), 200)),
});`,
};

/** The types that openapi-typescript generates are used by generated-client.ts, and by the client of the admin API. */
export const GENERATORS: readonly Generator[] = [HEY_API, ORVAL];

/** As strict as generated code allows. */
const TSCONFIG = {
  compilerOptions: {
    ...{ strict: true, noEmit: true, target: 'es2024', lib: ['es2024', 'dom', 'dom.iterable'], module: 'nodenext' },
    ...{ allowImportingTsExtensions: true, types: ['node'], skipLibCheck: true },
  },
  files: ['use.ts'],
};

/**
 * Generates a client and type-checks the module that uses it.
 * @returns a function that runs this module
 * @throws {Error} with the output of the generator or the compiler
 */
export async function generated(
  { generate, use }: Generator,
  storeUrl: string,
): Promise<(key: string) => Promise<string>> {
  const cwd = await temporaryFolder();
  symlinkSync(MODULES, join(cwd, 'node_modules'));
  writeFileSync(join(cwd, 'package.json'), '{"type":"module"}');
  writeFileSync(join(cwd, 'tsconfig.json'), JSON.stringify(TSCONFIG));
  writeFileSync(join(cwd, 'generate.mjs'), generate);
  writeFileSync(join(cwd, 'use.ts'), use);
  await run(['generate.mjs'], { STORE_URL: storeUrl }, cwd);
  await run([join(MODULES, 'typescript/bin/tsc'), '--project', '.'], {}, cwd);
  return (key) => run(['use.ts'], { STORE_URL: storeUrl, API_KEY: key }, cwd);
}

async function run(args: string[], env: NodeJS.ProcessEnv, cwd: string): Promise<string> {
  const { code, out, err } = await startProcess(process.execPath, args, { ...env, DO_NOT_TRACK: '1' }, { cwd }).ended;
  if (code !== 0) throw new Error(`${args[0]}: ${out}${err}`);
  return out;
}
