import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** What takes a minute, by its path: a fresh checkout has no times of an earlier run. */
const LONGEST = [
  'simulation/simulation.thorough',
  'faults/rolling-restarts',
  'examples/shared-key',
  'examples/generators',
  'core/durability',
  'core/restarts',
  'stores/sqlite-kills',
  'limiter/refusals-in-real-time',
  'browser/console-access',
  'browser/reference.thorough',
  'limiter/refusal-table',
  'faults/primary',
  'test/install',
  'gateway/oldest-node',
  'limiter/model',
  'gateway/lost-answers',
  'gateway/log-reader',
  'security/bytes.fuzz',
  'security/requests.fuzz',
];

/** The files of each project, the longest first: one that began last would run on while others' processors are idle. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const place = ({ moduleId }: TestSpecification) => LONGEST.findIndex((name) => moduleId.includes(name));
    const [long, others] = [sorted.filter((file) => place(file) !== -1), sorted.filter((file) => place(file) === -1)];
    return [...long.sort((a, b) => place(a) - place(b)), ...others];
  }
}
