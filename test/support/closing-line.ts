import type { Reporter, TestModule } from 'vitest/node';

/** Ends a run with one plain line that counts every test of it. */
export default class ClosingLine implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], errors: readonly unknown[]): void {
    const tests = modules.flatMap((module) => [...module.children.allTests()]);
    const count = (state: string) => tests.filter((test) => test.result().state === state).length;
    const brokenModules = modules.filter((module) => module.state() === 'failed' && module.errors().length > 0).length;
    const failed = count('failed') + brokenModules + errors.length;
    const skipped = count('skipped');
    process.stdout.write(`\n${count('passed')} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}\n`);
  }
}
