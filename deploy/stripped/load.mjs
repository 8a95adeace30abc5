/** Loads .ts files, whose types strip.mjs has stripped, as JavaScript: `node --import ./deploy/stripped/load.mjs …`. */
import { readFileSync } from 'node:fs';
import { registerHooks } from 'node:module';

registerHooks({
  load(url, context, next) {
    if (!url.endsWith('.ts')) return next(url, context);
    return { format: 'module', shortCircuit: true, source: readFileSync(new URL(url)) };
  },
});
