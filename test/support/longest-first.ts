import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** The files that take the longest. A fresh checkout has no durations of earlier runs, hence this list. */
const LONGEST = [
  'simulation/simulation',
  'faults/rolling-restarts',
  'examples/shared-key',
  'browser/reference.thorough',
  'limiter/refusals-in-real-time',
  'faults/primary',
  'browser/console-access',
  'core/durability',
  'limiter/model',
  'test/install',
  'gateway/log-reader',
  'faults/workers.thorough',
  'gateway/oldest-node',
  'gateway/one-at-a-time',
  'stores/redis-cluster',
  'operators/doctor.test',
  'operators/gateways',
  'operators/redis-away',
  'operators/bans',
  'operators/cli-requests',
  'gateway/core-spellings',
  'faults/redis.test',
  'gateway/large-answers',
  'gateway/core-names',
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
