import type { CheckResult, DoctorAnswer } from '../../api/answers.ts';
import type { Command } from '../command.ts';
import { EXIT, type Session } from '../session.ts';
import { colour, harmless, type Style, timeText } from '../text.ts';

const STYLES: Record<CheckResult['status'], Style> = { good: 'green', warning: 'yellow', fault: 'red', unknown: 'red' };

/** Longer than the gateway waits for its own checks. */
const ANSWER_WITHIN_MS = 5_000;

export function add(program: Command, session: Session): void {
  program
    .sub('doctor', 'check what the gateway depends on (Redis, cores, plan table) and report what to fix')
    .notes(
      '\nChanges nothing. Exits with 1 if there is a fault or something does not answer, otherwise with 0, even if there are warnings.',
    )
    .action(async () => {
      const request = { method: 'GET', path: '/doctor', withinMs: ANSWER_WITHIN_MS } as const;
      const { findings } = (await session.exchange(request)).body as DoctorAnswer;
      session.print({ findings }, () => describe(findings));
      if (findings.some(({ status }) => status === 'fault' || status === 'unknown')) process.exitCode = EXIT.fault;
    });
}

function describe(findings: readonly CheckResult[]): string {
  const width = Math.max(...findings.map(({ about }) => about.length));
  const lines = findings.flatMap(({ status, about, found, advice, since }) => {
    const from = status === 'unknown' && since !== undefined ? `, since ${timeText(since)}` : '';
    const line = `${colour(STYLES[status], status.padEnd('warning'.length))}  ${about.padEnd(width)}  ${harmless(found)}${from}`;
    return advice === undefined ? [line] : [line, `${' '.repeat('warning'.length + width + 4)}${harmless(advice)}`];
  });
  return lines.join('\n');
}
