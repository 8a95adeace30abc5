#!/usr/bin/env node
import { spawnSync } from 'node:child_process';
import { readFileSync, realpathSync } from 'node:fs';
import module, { createRequire } from 'node:module';

/**
 * The command line as an installed program. It runs on the current Node if that is new enough, and otherwise on the
 * Node that the package includes. Any Node since version 14 can run this file.
 */

const require = createRequire(import.meta.url);
const wanted = require('../../../package.json').engines.node.replace('>=', '');

if (process.versions.node.localeCompare(wanted, 'en', { numeric: true }) >= 0) {
  if (import.meta.url.includes('/node_modules/')) stripTypesInPackages();
  import('./main.js');
} else {
  const own = ownNode();
  if (own === undefined) {
    process.stderr.write(`This is Node ${process.versions.node}; ctl needs Node ${wanted} or later.\n`);
    process.exitCode = 1;
  } else {
    const { status } = spawnSync(own, process.argv.slice(1), { stdio: 'inherit' });
    process.exitCode = status === null ? 1 : status;
  }
}

/**
 * The path of the Node binary in the optional dependency. Undefined if the dependency is not installed, or if that
 * binary is already running this file.
 */
function ownNode() {
  try {
    const own = realpathSync(require.resolve(`node-${process.platform}-${process.arch}/bin/node`));
    return own === process.execPath ? undefined : own;
  } catch {
    return undefined;
  }
}

/** Strips types in node_modules too, which Node itself does not do. */
function stripTypesInPackages() {
  const here = new URL('../../../', import.meta.url).href;
  module.registerHooks({
    load(url, context, next) {
      if (!url.startsWith(here) || !url.endsWith('.ts')) return next(url, context);
      return { format: 'module', shortCircuit: true, source: withoutTypes(readFileSync(new URL(url), 'utf8')) };
    },
  });
}

/** Strips the types without Node's warning that this is experimental. */
function withoutTypes(text) {
  const { emitWarning } = process;
  process.emitWarning = () => {};
  try {
    return module.stripTypeScriptTypes(text);
  } finally {
    process.emitWarning = emitWarning;
  }
}
