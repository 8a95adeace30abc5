import type { ActivityAnswer } from '../../gateway/operators/api/answers.ts';
import type { Stack } from './stack.ts';

/** The audit log as the admin API returns it. */

export const pageOf = async (stack: Stack, query = ''): Promise<ActivityAnswer> =>
  (await stack.admin('GET', `/activity${query}`)).json as ActivityAnswer;

/** Newest first. */
export const activityOf = async (stack: Stack, query = '') => (await pageOf(stack, query)).activity;

/** The origin and the action of each change to a target, newest first. */
export const auditOf = async (stack: Stack, id: string) =>
  (await activityOf(stack)).filter(({ target }) => target === id).map(({ action, via }) => `${via}: ${action}`);
