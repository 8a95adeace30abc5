import { join } from 'node:path';
import type { Logger } from '../../../shared/process/logger.ts';
import { good } from '../../check-result.ts';
import { systemClock } from '../../limiter/clock.ts';
import type { PlanTable } from '../../limiter/plans.ts';
import type { Backend } from '../stores.ts';
import { FileActivity } from './activity.ts';
import { FileBackupNotes } from './backup-notes.ts';
import { FileKeys } from './keys.ts';
import { MemoryLimiter } from './limiter.ts';
import { FilePlans } from './plans.ts';
import { FileTokens } from './tokens.ts';

/** Keys, plans and decisions of a standalone gateway, without Redis. */
export async function memoryBackend(
  directory: string,
  plans: () => PlanTable,
  logger: Logger,
  activityLength?: number,
): Promise<Backend> {
  const file = (name: string) => join(directory, name);
  const activity = await FileActivity.open(file('activity.jsonl'), {
    ...(activityLength !== undefined && { length: activityLength }),
    onLost: (entry, reason) =>
      logger.error({ activity: entry, reason }, 'a change is in force, but the activity does not have it'),
  });
  const keys = await FileKeys.open(directory, activity);
  const plansFile = new FilePlans(file('plans.json'), file('plans-history.json'), activity);
  const tokens = new FileTokens(file('tokens.json'), activity);
  return {
    limiter: new MemoryLimiter(keys, plans),
    keys,
    plans: plansFile,
    operators: async () => ({
      keys,
      plans: plansFile,
      activity,
      tokens,
      backups: new FileBackupNotes(file('backup.json')),
    }),
    loadScript: async () => true,
    bans: () => keys.bans(systemClock()),
    nodesAway: () => 0,
    redis: () => undefined,
    counted: () => [],
    memoryUsed: async () => [],
    check: async () => [good('limits', 'are embedded in this process; with REDIS_URL gateways share them')],
    async close() {},
  };
}
