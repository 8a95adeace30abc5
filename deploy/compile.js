/**
 * `npm ci` runs this: it compiles the gateway for the first start. A process that finds all its code compiled does not
 * load Node's TypeScript compiler, which would take 20 MB in each as long as it runs.
 */
import { readdirSync } from 'node:fs';
import { enableCompileCache } from 'node:module';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '..');
/** What runs when it is imported, and what is not for Node or not part of a service. */
const LEFT_OUT = /\/(?:main|help)\.ts$|^gateway\/operators\/(?:cli|console)\//;

enableCompileCache(join(ROOT, 'node_modules/.cache/compiled'));
for (const folder of ['shared', 'gateway']) {
  const paths = readdirSync(join(ROOT, folder), { recursive: true }).map((file) => join(folder, file));
  for (const path of paths.filter((path) => path.endsWith('.ts') && !LEFT_OUT.test(path)))
    await import(join(ROOT, path));
}
