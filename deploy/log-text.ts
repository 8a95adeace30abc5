import { styleText } from 'node:util';
import type { Activity } from '../gateway/stores/audit.ts';

/** Log lines for a person at a terminal: one short line each. */

type Style = Parameters<typeof styleText>[0];
type Paint = (style: Style, text: string) => string;

/** A line of a service's log. */
export type LogLine = Readonly<Record<string, unknown>>;

/** Colours for a stream; none with NO_COLOR. */
export const painter =
  (stream: NodeJS.WriteStream): Paint =>
  (style, text) =>
    styleText(style, text, { stream });

const INFO = 30;
const FATAL = 60;
const LEVELS: readonly (readonly [level: number, name: string, style: Style])[] = [
  [FATAL, 'fatal', 'red'],
  [50, 'error', 'red'],
  [40, 'warn', 'yellow'],
  [INFO, 'info', 'cyan'],
  [0, 'debug', 'dim'],
];

/**
 * Whether a person wants to see a line. The core's line of a forwarded request repeats the gateway's. Whatever the
 * console asks to show is no event.
 */
export function isShown({ msg, service, level, status, method, callerId }: LogLine): boolean {
  if (msg === 'request' && service === 'core' && callerId !== undefined) return Number(status) >= 500;
  return isWarning({ level }) || !(msg === 'operator request' && method === 'GET');
}

export const isWarning = ({ level }: LogLine): boolean => Number(level) > INFO;

/** In milliseconds. The line of a request is written after its answer. */
export const beganAt = ({ time, durationMs }: LogLine): number => Date.parse(String(time)) - Number(durationMs ?? 0);

/** A line of a log; undefined if it is none. Clients choose paths, so characters that control a terminal are replaced. */
export function parseLine(text: string): LogLine | undefined {
  try {
    const value: unknown = JSON.parse(text, (member, of) => (typeof of === 'string' ? harmless(of, member) : of));
    return typeof value === 'object' && value !== null ? (value as LogLine) : undefined;
  } catch {
    return undefined;
  }
}

/** Only a stack has several lines. */
const harmless = (text: string, member: string): string =>
  text.replaceAll(member === 'stack' ? /(?!\n)\p{Cc}/gu : /\p{Cc}/gu, '\u{fffd}');

/** A log line as text. @param name of its key, if it is known */
export function describeLine(line: LogLine, name: string | undefined, paint: Paint): string {
  const text = textOf(line, name, paint);
  const { stack } = (line.err ?? {}) as { stack?: string };
  const isUnknown = line.code === 'internal_error' || Number(line.level) >= FATAL;
  const rest = isUnknown && stack !== undefined ? `\n${paint('dim', stack)}` : '';
  return `${paint('dim', clock(line.time))} ${text}${rest}`;
}

function textOf(line: LogLine, name: string | undefined, paint: Paint): string {
  if (typeof line.status === 'number') return requestText(line, name, paint);
  if (line.msg === 'activity') return activityText(line.activity as Activity, paint);
  return eventText(line, paint);
}

function requestText(line: LogLine, name: string | undefined, paint: Paint): string {
  const { status, method, path, durationMs, plan, code, reason, service, msg } = line;
  const err = (line.err as { message?: unknown } | undefined)?.message;
  const about = [
    msg === 'operator request' ? 'operators' : service === 'core' ? 'core' : undefined,
    plan,
    name ?? line.keyId,
    line.shadow === undefined ? undefined : `shadow: ${line.shadow}`,
  ];
  return [
    paint(styleOf(Number(status)), String(status)),
    method,
    path ?? '-',
    paint('dim', `${Math.max(1, Math.round(Number(durationMs)))} ms`),
    ...about,
    code === undefined ? undefined : paint('yellow', String(code)),
    reason ?? err,
  ]
    .filter((part) => part !== undefined)
    .join(' ');
}

/** What an operator did. */
function activityText({ actor, action, target, reason, changes }: Activity, paint: Paint): string {
  const changed = changes.map(({ field, from = 'none', to = 'none' }) => `${field} ${from} -> ${to}`);
  const why = reason === '' ? [] : [reason];
  return `${paint('cyan', action)} ${target} by ${actor}${[...changed, ...why].map((part) => `, ${part}`).join('')}`;
}

function styleOf(status: number): Style {
  if (status >= 500) return 'red';
  return status >= 400 ? 'yellow' : 'green';
}

/** Members that say where a line comes from, or that are shown by themselves. */
const OWN: ReadonlySet<string> = new Set(['level', 'time', 'service', 'worker', 'msg', 'err', 'reason']);

function eventText(line: LogLine, paint: Paint): string {
  const [, level, style] = LEVELS.find(([least]) => Number(line.level) >= least) ?? [0, 'info', 'cyan' as const];
  const reason = (line.err as { message?: unknown } | undefined)?.message ?? line.reason;
  const others = Object.entries(line).filter(([member]) => !OWN.has(member));
  const facts = others.map(
    ([member, value]) => `${member}=${typeof value === 'string' ? value : JSON.stringify(value)}`,
  );
  const said = `${line.service} ${line.msg}${reason === undefined ? '' : `: ${reason}`}`;
  return [paint(style, level), said, facts.length > 0 ? paint('dim', facts.join(' ')) : ''].filter(Boolean).join(' ');
}

/** Local time of the day. */
const clock = (time: unknown): string => new Date(String(time)).toLocaleTimeString('sv-SE');
