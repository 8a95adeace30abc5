import type { Logger } from '../../shared/process/logger.ts';
import { activityIn } from './audit.ts';
import { type Change, type Storage, Unconfirmed, withOwn } from './storage.ts';

/**
 * The storage of operators, with a log line for each audit entry. The line is written as soon as the change is made,
 * whether or not the change is acknowledged.
 */
export function logged(storage: Storage, logger: Logger): Storage {
  async function change(given: Change): Promise<boolean> {
    try {
      const isMade = await storage.change(given);
      if (isMade) log(given);
      return isMade;
    } catch (fault) {
      if (fault instanceof Unconfirmed) log(given);
      throw fault;
    }
  }

  /** An invalid value that was typed by hand is an alarm too. */
  function log({ entries }: Change): void {
    for (const { log, fields } of entries) {
      if (log !== 'audit') continue;
      const activity = activityIn(fields);
      const { target: keyId, reason, via } = activity;
      logger.info({ activity }, 'activity');
      if (via === 'by hand' && reason.includes('is not valid'))
        logger.error({ keyId, reason }, 'value of a key rejected');
    }
  }

  return withOwn(storage, { change });
}
