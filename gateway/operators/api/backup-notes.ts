import { z } from 'zod';
import { must } from '../../../shared/schemas/must.ts';
import { type CheckResult, good, warning } from '../../check-result.ts';
import { allOf, entry, readChange } from './activity-of-call.ts';
import type { AdminDependencies, AdminOperation } from './operation.ts';

/** When keys were last backed up. The writer of a backup reports it: the gateway cannot know what was kept. */

const OLD_AFTER_SECONDS = 26 * 3_600;

/** A backup without a key does not count, because it would hide a loss of data. */
export const BackupMade = z.strictObject({
  keys: z.int({ error: must('be a whole number') }).min(1, { error: must('be at least 1') }),
});

/** Notes that a backup of all keys is complete. */
export const noteBackup: AdminOperation = async (call) => {
  const { about, given } = await readChange(call, BackupMade);
  const seconds = Math.floor(Date.now() / 1_000);
  const activity = entry(about, 'backup.make', '*', allOf({ keys: String(given.keys) }));
  await call.deps.backups.note(seconds, activity);
  return { status: 201, body: { completedAt: timeOf(seconds) } };
};

type Stores = Pick<AdminDependencies, 'backups' | 'keys'>;

/**
 * The time of the last complete backup in Unix seconds; 0 if there are keys but no backup.
 * @returns undefined if there is nothing to back up, or if the store does not answer
 */
export async function lastBackup({ backups, keys }: Stores): Promise<number | undefined> {
  try {
    const last = await backups.last();
    if (last !== undefined) return last;
    return (await keys.count()) > 0 ? 0 : undefined;
  } catch {
    return undefined;
  }
}

export async function checkBackup(stores: Stores): Promise<CheckResult[]> {
  const last = await lastBackup(stores);
  const advice = 'Run: ctl backup > keys.jsonl. See GatewayBackupMissing in the runbook.';
  // An empty store needs no backup, and a store that is away has its own finding.
  if (last === undefined) return [];
  if (last === 0) return [warning('backup', 'the keys have never been backed up', advice)];
  const found = `the last complete one was made at ${timeOf(last)}`;
  return [Date.now() / 1_000 - last > OLD_AFTER_SECONDS ? warning('backup', found, advice) : good('backup', found)];
}

const timeOf = (seconds: number): string => new Date(seconds * 1_000).toISOString();
