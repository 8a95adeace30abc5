import { z } from 'zod';
import { must } from '../../shared/must.ts';
import { MAX_LIMIT } from '../access/plans.ts';

const RANGE = must(`be a whole number from 1 to ${MAX_LIMIT}`);

/** A limit as an operator sends it. */
export const limitValue = z.int({ error: RANGE }).min(1, { error: RANGE }).max(MAX_LIMIT, { error: RANGE });
