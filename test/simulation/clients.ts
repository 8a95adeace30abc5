import { setTimeout as sleep } from 'node:timers/promises';
import type { Answer } from './invariants.ts';
import type { ClientStep } from './plan.ts';
import { Random } from './random.ts';

const LONGEST_BACK_OFF_MS = 8_000;
const UNAVAILABLE_MS = 1_000;

/** The Retry-After of an answer in ms, if it has one. */
function retryAfterMs(answer: Answer): number | undefined {
  if (answer === undefined) return UNAVAILABLE_MS;
  if (answer.outcome !== 'refused' && answer.outcome !== 'banned') return undefined;
  return Math.ceil(((answer.retryAt ?? 0) - answer.now) / 1e6) * 1_000;
}

/**
 * Runs a client of one kind for the duration of the step.
 * @param about `minute` is the minute limit of the client's key, as far as its owner knows
 */
export async function runClient(
  step: ClientStep,
  about: {
    readonly now: number;
    readonly minute: number;
    ask(random: Random, waitedSince?: number): Promise<Answer>;
  },
): Promise<void> {
  const random = new Random(step.seed);
  const endsAt = about.now + step.forMs;
  const tokenMs = 60_000 / about.minute;
  let waitedSince: number | undefined;
  for (let refused = 0; about.now < endsAt; ) {
    switch (step.kind) {
      case 'hammers':
        void about.ask(random);
        await sleep(tokenMs / step.times);
        break;
      case 'bursts':
        await Promise.all(Array.from({ length: random.between(2, 30) }, () => about.ask(random)));
        await sleep(random.between(100, 3_000));
        break;
      case 'backs off':
      case 'polite': {
        const answer = await about.ask(random, waitedSince);
        const waitMs = retryAfterMs(answer);
        refused = waitMs === undefined ? 0 : refused + 1;
        waitedSince = step.kind === 'polite' && answer?.outcome === 'refused' ? about.now : undefined;
        if (waitMs === undefined) await sleep(random.between(0, tokenMs / 2));
        else await sleep(step.kind === 'polite' ? waitMs : Math.min(2 ** refused * 100, LONGEST_BACK_OFF_MS));
      }
    }
  }
}
