import { enableCompileCache } from 'node:module';
import { join } from 'node:path';

/**
 * Keeps compiled code for the next start, because compiling takes half of a start. It is kept beside the packages: in
 * the system's temporary folder other users could write code that we run. If the folder is not writable, nothing is
 * kept. Only modules imported after this call are kept, so a main imports its program with `import()`.
 */
export function keepCompiled(): void {
  enableCompileCache(join(import.meta.dirname, '../../node_modules/.cache/compiled'));
}
