import { setTimeout as sleep } from 'node:timers/promises';
import type { Load } from './load.ts';
import type { SoakProcess } from './process.ts';
import type { Disturbance } from './record.ts';
import type { Stage } from './stage.ts';

/** The faults of a soak test. */
export interface Fault {
  readonly name: string;
  /**
   * The part that fails. Clients must not notice a fault of kind `none`, and external clients must not notice one of
   * kind `restart`.
   */
  readonly kind: Disturbance['kind'];
  /** Resolves when the fault is over. */
  strike(stage: Stage, load: Load): Promise<unknown>;
}

const DURATION_MS = 1_500;

/** The number of core faults so far. The cores fail in turn, so it determines the next one. */
let turn = 0;
const nextCore = ({ cores }: Stage) => cores[turn++ % cores.length] as SoakProcess;

/** Causes a fault in a part of the stage, and ends it after a while. */
const lasting =
  <Part>(part: (stage: Stage) => Part, cause: (part: Part) => unknown, heal: (part: Part) => unknown) =>
  async (stage: Stage): Promise<void> => {
    const struck = part(stage);
    await cause(struck);
    await sleep(DURATION_MS);
    await heal(struck);
  };

const killed = (part: (stage: Stage) => SoakProcess) =>
  lasting(
    part,
    (process) => process.end('SIGKILL'),
    (process) => process.start(),
  );

const suspended = (part: (stage: Stage) => SoakProcess) =>
  lasting(
    part,
    (process) => process.signal('SIGSTOP'),
    (process) => process.signal('SIGCONT'),
  );

/** Causes a short fault this many times within the duration of one long fault. */
const repeated =
  (times: number, act: Fault['strike']): Fault['strike'] =>
  async (stage, load) => {
    for (let time = 0; time < times; time++) {
      await act(stage, load);
      await sleep(DURATION_MS / times);
    }
  };

const END_CONNECTIONS = 'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()';

export const FAULTS: readonly Fault[] = [
  { name: 'Redis is killed', kind: 'redis', strike: killed(({ redis }) => redis) },
  { name: 'a core is killed', kind: 'core', strike: killed(nextCore) },
  {
    name: "clients' connections are cut",
    kind: 'none',
    strike: repeated(5, async (_, load) => load.cutClients()),
  },
  { name: 'Redis is stopped', kind: 'redis', strike: suspended(({ redis }) => redis) },
  { name: 'a core is stopped', kind: 'core', strike: suspended(nextCore) },
  { name: 'scripts are flushed', kind: 'none', strike: repeated(15, ({ client }) => client.script('FLUSH')) },
  {
    name: 'Redis is a replica',
    kind: 'redis',
    strike: lasting(
      ({ client }) => client,
      (client) => client.replicaof('127.0.0.1', 1),
      (client) => client.replicaof('NO', 'ONE'),
    ),
  },
  {
    name: 'PostgreSQL closes its connections',
    kind: 'database',
    strike: repeated(15, ({ database }) => database.query(END_CONNECTIONS)),
  },
  {
    name: 'a core is restarted',
    kind: 'restart',
    async strike(stage) {
      const core = nextCore(stage);
      await core.end('SIGTERM');
      await core.start();
    },
  },
];
