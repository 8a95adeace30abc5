import module from 'node:module';
import { join } from 'node:path';

/**
 * Each program imports this file first: it uses the compiled code, and says so if this Node is too old. It is plain
 * JavaScript, so that any Node can run it.
 */

const OLDEST = 24;

if (Number.parseInt(process.versions.node, 10) < OLDEST) {
  process.stderr.write(
    `This is Node ${process.versions.node}; Node 24.15 or later is needed. On Linux, npm ci installs one in node_modules/.bin.\n`,
  );
  process.exit(1);
}
module.enableCompileCache(join(import.meta.dirname, '../../node_modules/.cache/compiled'));
