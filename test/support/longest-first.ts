import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** The files that take the longest. A fresh checkout has no durations of earlier runs, hence this list. */
const LONGEST = [
  'test/install',
  'gateway/oldest-node',
  'faults/primary',
  'faults/workers.thorough',
  'faults/rolling-restarts',
  'gateway/embedded-disk',
  'gateway/embedded-worker',
  'browser/console-keys',
  'simulation/simulation',
  'gateway/npm-start.',
  'browser/console-access',
  'browser/console-requests',
  'core/durability',
  'faults/stalls',
  'gateway/log-reader',
  'operators/cli-program',
  'stores/sqlite-disk',
  'stores/redis-cluster',
  'browser/reference',
  'operators/roles',
  'operators/doctor.test',
  'operators/bans',
  'gateway/large-answers',
  'gateway/where-a-key-stands',
  'gateway/settings',
  'limiter/model',
];

/** Runs the longest files of each project first. A long file that starts last would run while other CPUs are idle. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const place = ({ moduleId }: TestSpecification) => LONGEST.findIndex((name) => moduleId.includes(name));
    const [long, others] = [sorted.filter((file) => place(file) !== -1), sorted.filter((file) => place(file) === -1)];
    return [...long.sort((a, b) => place(a) - place(b)), ...others];
  }
}
