import type { Reporter, TestCase, TestModule } from 'vitest/node';

const SLOWEST_SHOWN = 10;

/**
 * The end of a run, where no other output hides it: the slowest files, what failed and why, what needed another try, and a
 * line that counts all tests.
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
      ...tests.filter((test) => test.diagnostic()?.flaky).map((test) => `not at the first try: ${nameOf(test)}`),
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

const nameOf = (test: TestCase): string => `${test.module.relativeModuleId} > ${test.fullName}`;

/** Short enough for the end of a long log. */
const reasonsOf = (test: TestCase): string =>
  (test.result().errors ?? []).map(({ message }) => `  ${message.slice(0, 400)}`).join('\n');
