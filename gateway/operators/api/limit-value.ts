import { z } from 'zod';
import { must } from '../../../shared/schemas/must.ts';
import { MAX_LIMIT } from '../../limiter/plans.ts';

const RANGE = must(`be a whole number from 1 to ${MAX_LIMIT}`);

/** A limit in an operator's request. */
export const limitValue = z.int({ error: RANGE }).min(1, { error: RANGE }).max(MAX_LIMIT, { error: RANGE });
