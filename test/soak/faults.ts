import { setTimeout as sleep } from 'node:timers/promises';
import type { Load } from './load.ts';
import type { Disturbance } from './record.ts';
import type { Stage } from './stage.ts';

/** What goes wrong in a soak. */
export interface Fault {
  readonly name: string;
  /** Whose failing it is; none where clients are promised to see nothing of it. Of a restart, external clients see nothing. */
  readonly kind: Disturbance['kind'];
  /** Ends when it is over. */
  strike(stage: Stage, load: Load): Promise<unknown>;
}

const DURATION_MS = 1_500;

/** The cores take turns. */
let turn = 0;
const nextCore = ({ cores }: Stage) => cores[turn++ % cores.length] as Stage['cores'][number];

export const FAULTS: readonly Fault[] = [
  {
    name: 'Redis is killed',
    kind: 'redis',
    async strike({ redis }) {
      await redis.end('SIGKILL');
      await sleep(DURATION_MS);
      await redis.start();
    },
  },
  {
    name: 'a core is killed',
    kind: 'core',
    async strike(stage) {
      const core = nextCore(stage);
      await core.end('SIGKILL');
      await sleep(DURATION_MS);
      await core.start();
    },
  },
  {
    name: "clients' connections are cut",
    kind: 'none',
    async strike(_, load) {
      for (let cut = 0; cut < 5; cut++) {
        load.cutClients();
        await sleep(DURATION_MS / 5);
      }
    },
  },
  {
    name: 'Redis is stopped',
    kind: 'redis',
    async strike({ redis }) {
      redis.signal('SIGSTOP');
      await sleep(DURATION_MS);
      redis.signal('SIGCONT');
    },
  },
  {
    name: 'a core is stopped',
    kind: 'core',
    async strike(stage) {
      const core = nextCore(stage);
      core.signal('SIGSTOP');
      await sleep(DURATION_MS);
      core.signal('SIGCONT');
    },
  },
  {
    name: 'scripts are flushed',
    kind: 'none',
    async strike({ client }) {
      for (let flush = 0; flush < 15; flush++) {
        await client.script('FLUSH');
        await sleep(DURATION_MS / 15);
      }
    },
  },
  {
    name: 'Redis is a replica',
    kind: 'redis',
    async strike({ client }) {
      await client.replicaof('127.0.0.1', 1);
      await sleep(DURATION_MS);
      await client.replicaof('NO', 'ONE');
    },
  },
  {
    name: 'PostgreSQL ends its connections',
    kind: 'database',
    async strike({ database }) {
      for (let ended = 0; ended < 15; ended++) {
        await database.query('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()');
        await sleep(DURATION_MS / 15);
      }
    },
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
