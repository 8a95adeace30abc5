import { enableCompileCache } from 'node:module';
import { join } from 'node:path';

/**
 * Keeps compiled code beside the packages, for the next start: half of a start is compiling. Not in the machine's temporary
 * folder, where other users could write code that we run. Where nothing can be written, nothing is kept. What is imported
 * after this call is kept, so a main imports the rest of its program with `import()`.
 */
export function keepCompiled(): void {
  enableCompileCache(join(import.meta.dirname, '../node_modules/.cache/compiled'));
}
