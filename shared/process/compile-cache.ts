import { enableCompileCache, getCompileCacheDir } from 'node:module';
import { dirname, join } from 'node:path';

/**
 * Where compiled code is kept: beside the packages, because in the system's temporary folder other users could write
 * code that we run. A process that gets it as NODE_COMPILE_CACHE takes its first file from there too. It then loads no
 * compiler of TypeScript, and is 20 MB smaller.
 */
export const COMPILED = join(import.meta.dirname, '../../node_modules/.cache/compiled');

/**
 * Keeps compiled code for the next start, because compiling takes half of a start. If the folder is not writable,
 * nothing is kept. Only modules imported after this call are kept, so a main imports its program with `import()`.
 */
export function keepCompiled(): void {
  enableCompileCache(COMPILED);
}

/** The folder that this process uses, which an operator may have chosen; undefined if nothing is kept. */
export function compiledFolder(): string | undefined {
  // Node names a folder in it after its version and the user.
  const folder = getCompileCacheDir();
  return folder === undefined ? undefined : dirname(folder);
}
