import { totalsOf } from '../traffic/totals.ts';
import type { AdminOperation } from './parts.ts';

/** Of rejected values, so many are shown, and of each so many characters: a hand can put anything into the table. */
const MOST_REJECTED = 100;
const MOST_CHARACTERS = 100;

/**
 * What clients asked of this gateway since it was started and how it stands, all workers together; cheap enough to be asked
 * for every second.
 */
export const showTraffic: AdminOperation = async ({ parts: { traffic, planBook } }) => {
  const { totals, plans } = totalsOf(traffic.counted());
  return {
    status: 200,
    body: {
      since: traffic.since.toISOString(),
      mode: traffic.isLocal() ? 'local' : 'shared',
      totals,
      plans,
      planTable: {
        version: planBook.version,
        changedAt: planBook.changedAt.toISOString(),
        rejectedValues: planBook.rejected.length,
        rejected: planBook.rejected.slice(0, MOST_REJECTED).map(({ field, value, kept }) => ({
          field: field.slice(0, MOST_CHARACTERS),
          value: value?.slice(0, MOST_CHARACTERS),
          kept,
        })),
      },
    },
  };
};
