import { HttpError } from '../../shared/errors.ts';
import { DECISIONS_KEPT } from '../telemetry/recent-decisions.ts';
import { describe, findKey } from './keys.ts';
import type { AdminOperation } from './parts.ts';

/** A key as it stands now, and the last decisions about it that this gateway's processes took, the newest first. */
export const explainKey: AdminOperation = async ({ parts, params }) => {
  const entry = await findKey(parts, params[0]);
  const [key, decisions] = await Promise.all([describe(parts, entry), parts.decisions.find({ keyId: entry.id })]);
  return { status: 200, body: { key, planVersion: parts.planCache.version, decisions } };
};

/** The decisions on a request; several, the newest first, where clients use an id again. */
export const explainRequest: AdminOperation = async ({ parts, params }) => {
  const decisions = await parts.decisions.find({ requestId: params[0] });
  if (decisions.length === 0)
    throw new HttpError(
      'not_found',
      `None of the last ${DECISIONS_KEPT} decisions of each process of this gateway was about such a request.`,
    );
  return { status: 200, body: { decisions } };
};
