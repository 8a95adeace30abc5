import type { Reporter, TestCase, TestModule } from 'vitest/node';

/** Ends a run with the names of the tests that failed, where no other output hides them, and one plain line that counts every test. */
export default class ClosingLine implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], errors: readonly unknown[]): void {
    const tests = modules.flatMap((module) => [...module.children.allTests()]);
    const count = (state: string) => tests.filter((test) => test.result().state === state).length;
    const brokenModules = modules.filter((module) => module.state() === 'failed' && module.errors().length > 0).length;
    const failed = count('failed') + brokenModules + errors.length;
    const skipped = count('skipped');
    for (const test of tests.filter((test) => test.result().state === 'failed')) {
      process.stdout.write(`\nfailed: ${test.module.relativeModuleId} > ${test.fullName}\n  ${firstLines(test)}`);
    }
    process.stdout.write(`\n${count('passed')} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}\n`);
  }
}

/** What the test's errors say, short enough for the end of a long log. */
function firstLines(test: TestCase): string {
  return (test.result().errors ?? []).map((error) => error.message.slice(0, 400)).join('\n  ');
}
