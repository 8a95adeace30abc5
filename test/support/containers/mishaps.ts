import { readdirSync, readFileSync } from 'node:fs';
import type { ComposeProject } from './compose-up.ts';
import { containerNamed } from './container.ts';
import type { Docker } from './docker.ts';

/** What happens to containers: they crash, are stopped and started, and are replaced by new ones. */

/** Each returns once it has happened, and everything that it starts is healthy. */
export interface Mishaps {
  /** Its first process is killed. The engine starts it again, because of its restart policy. */
  crash(service: string): Promise<void>;
  stopAndStart(service: string): Promise<void>;
  replace(service: string): Promise<void>;
}

const HEALTHY_MS = 60_000;

export function mishapsOf(docker: Docker, { compose, nameOf }: ComposeProject): Mishaps {
  const inspect = (service: string, format: string) => docker(['inspect', '--format', format, nameOf(service)]);
  const untilHealthy = async (service: string, startedBefore: string) => {
    const until = performance.now() + HEALTHY_MS;
    for (;;) {
      const { StartedAt, Health } = await containerNamed(docker, nameOf(service)).state();
      if (StartedAt !== startedBefore && Health?.Status === 'healthy') return;
      if (performance.now() > until) throw new Error(`${service} is not healthy again: ${Health?.Status}.`);
    }
  };
  return {
    async crash(service) {
      const [pid, startedAt = ''] = (await inspect(service, '{{.State.Pid}} {{.State.StartedAt}}')).split(' ');
      process.kill(pidOutside(Number(pid)), 'SIGKILL');
      await untilHealthy(service, startedAt);
    },
    async stopAndStart(service) {
      const startedAt = await inspect(service, '{{.State.StartedAt}}');
      await compose('stop', service);
      await compose('start', service);
      await untilHealthy(service, startedAt);
    },
    replace: async (service) =>
      void (await compose('up', '--detach', '--no-deps', '--no-build', '--force-recreate', '--wait', service)),
  };
}

/** A process's id on this machine. @param inside its id among the engine's processes */
function pidOutside(inside: number): number {
  for (const name of readdirSync('/proc').filter((entry) => /^\d+$/.test(entry))) {
    const [, , ofEngine] = /^NSpid:\t(\d+)\t(\d+)/m.exec(statusOf(name)) ?? [];
    if (Number(ofEngine) === inside) return Number(name);
  }
  throw new Error(`The engine has no process ${inside}.`);
}

function statusOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/status`, 'utf8');
  } catch {
    return '';
  }
}
