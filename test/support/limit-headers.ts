import type { LimitStatus } from '../../gateway/limiter/limiter.ts';
import { addLimits } from '../../gateway/pipeline/client-http.ts';

/** All limit headers of an answer with this limit status, as a flat list. */
export function limitHeaders(status: LimitStatus, draftFields: boolean): string[] {
  const headers: string[] = [];
  addLimits(headers, status, draftFields);
  return headers;
}
