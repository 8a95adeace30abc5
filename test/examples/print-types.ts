import { registerHooks } from 'node:module';
import { describeApi } from '../../gateway/reference/openapi.ts';

/**
 * Prints the types that openapi-typescript generates from the API's description. It needs the compiler API of
 * TypeScript 5, which TypeScript 7 no longer has; @ts-morph/common contains it.
 */

const COMPILER = new URL('./typescript-5.ts', import.meta.url).href;
registerHooks({
  resolve: (specifier, context, next) =>
    specifier === 'typescript' ? { url: COMPILER, shortCircuit: true } : next(specifier, context),
});
const { default: openapiTypes, astToString } = await import('openapi-typescript');

// What the description says stands there, and in the reference.
const types = await openapiTypes(JSON.stringify(describeApi()));
process.stdout.write(astToString(types, { formatOptions: { removeComments: true } }));
