import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Reporter, TestCase, TestModule } from 'vitest/node';

const SLOWEST_SHOWN = 10;
const TESTS = join(import.meta.dirname, '..');
/** A run of fewer files counts as a selection of tests by name. */
const WHOLE_RUN = 50;

/**
 * Prints a summary at the end of a run: the slowest files, failures and their reasons, retried tests, and a line with
 * the counts.
 */
export default class ClosingLine implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], errors: readonly unknown[]): void {
    const tests = modules.flatMap((module) => [...module.children.allTests()]);
    const withState = (state: string) => tests.filter((test) => test.result().state === state);
    const brokenModules = modules.filter((module) => module.state() === 'failed' && module.errors().length > 0);
    const failed = withState('failed').length + brokenModules.length + errors.length;
    const skipped = withState('skipped').length;
    const lines = [
      ...slowest(modules),
      ...withState('failed').map((test) => `failed: ${nameOf(test)}\n${reasonsOf(test)}`),
      ...brokenModules.map(({ relativeModuleId }) => `failed: ${relativeModuleId}`),
      ...tests.filter((test) => test.diagnostic()?.flaky).map((test) => `passed on a retry: ${nameOf(test)}`),
      ...leftOut(modules),
      `${withState('passed').length} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`,
    ];
    process.stdout.write(`\n${lines.join('\n')}\n`);
  }
}

function slowest(modules: readonly TestModule[]): string[] {
  const seconds = (module: TestModule) => (module.diagnostic().duration + module.diagnostic().collectDuration) / 1_000;
  const inOrder = modules.toSorted((a, b) => seconds(b) - seconds(a)).slice(0, SLOWEST_SHOWN);
  return inOrder.map((module) => `slow: ${seconds(module).toFixed(1)} s ${module.relativeModuleId}`);
}

/** Returns a note if a whole run left out the long files. */
function leftOut(modules: readonly TestModule[]): string[] {
  const isLong = (file: string) => file.includes('.thorough.');
  if (modules.length < WHOLE_RUN || modules.some(({ moduleId }) => isLong(moduleId))) return [];
  const files = readdirSync(TESTS, { recursive: true, encoding: 'utf8' });
  const long = files.filter((file) => isLong(file) && !file.includes('node_modules/'));
  return [
    `${long.length} long files were left out; run them with THOROUGH=1, as in CI, or by name: npm test -- <name>`,
  ];
}

const nameOf = (test: TestCase): string => `${test.module.relativeModuleId} > ${test.fullName}`;

/** The reasons for a failure, shortened so that the end of a long log stays readable. */
const reasonsOf = (test: TestCase): string =>
  (test.result().errors ?? []).map(({ message }) => `  ${message.slice(0, 400)}`).join('\n');
