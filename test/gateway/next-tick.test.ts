import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { ROOT } from '../support/root.ts';

/**
 * Calls `process.nextTick` often, collects all garbage while no call is pending, and calls it again.
 * @param first code that runs before that
 * @returns the state of V8's inline cache for each member of a call's object, as one word each
 */
function statesOfMembers(first: string): string[] {
  const code = `
    const { setImmediate: turn } = require('node:timers/promises');
    (async () => {
      ${first}
      await turn();
      for (let call = 0; call < 100; call++) process.nextTick(() => {});
      await turn();
      // V8 keeps unused hidden classes for two collections.
      for (let times = 0; times < 5; times++) await turn(gc());
      process.nextTick(() => {});
      await turn();
      %DebugPrint(process.nextTick);
    })();`;
  const options = ['--allow-natives-syntax', '--expose-gc', '-e', code];
  const printed = execFileSync(process.execPath, options, { cwd: ROOT, encoding: 'utf8', maxBuffer: 16_777_216 });
  return [...printed.matchAll(/DefineKeyedOwnPropertyInLiteral ([A-Z]+)/g)].map(([, state = '']) => state);
}

test('a garbage collection does not make process.nextTick permanently slow', () => {
  const kept = statesOfMembers("(await import('./shared/process/run.ts')).keepTickClass();");
  expect(kept).toEqual(Array(5).fill('MONOMORPHIC'));
  // Once this fails, Node or V8 has fixed the cause, and `keepTickClass` can be removed.
  expect(statesOfMembers('')).toContain('MEGAMORPHIC');
});
