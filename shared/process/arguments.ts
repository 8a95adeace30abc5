import { looksLike } from './misspelt.ts';

/** Settings are environment variables. The only argument of a program is `--help`. */

/** Whether the arguments ask for help instead of a start. */
export const asksForHelp = (given: readonly string[]): boolean => given.includes('--help') || given.includes('-h');

/**
 * The faults of arguments: each argument, with a message that suggests the setting it resembles. A long argument that
 * is neither an option nor a setting's name is reported only by its position, because it may be a token.
 * @param secrets the settings whose values must not be repeated
 */
export function argumentFaults(
  given: readonly string[],
  settings: readonly string[],
  secrets: readonly string[],
): [argument: string, message: string][] {
  return given.flatMap((argument, at) => {
    if (isValue(given, at)) return [];
    const [name = '', value = isValue(given, at + 1) ? given[at + 1] : undefined] = argument.split(/=(.*)/s);
    const setting = settingOf(name, settings);
    if (setting !== undefined) return [[name, suggestion(setting, secrets.includes(setting) ? undefined : value)]];
    const shown = /^(?:--[\w-]+|-\w|\w{1,15}$)/.exec(name)?.[0] ?? `argument ${at + 1}`;
    return [[shown, `${NO_ARGUMENT} --help lists them`]];
  });
}

/** Whether this is the value of the option before it, as in `--port 9000`. */
const isValue = (given: readonly string[], at: number): boolean =>
  at < given.length && !given[at]?.startsWith('-') && /^-[^=]*$/.test(given[at - 1] ?? '');

function settingOf(name: string, settings: readonly string[]): string | undefined {
  const meant = name.replace(/^-+/, '').replaceAll('-', '_').toUpperCase();
  return settings.find((setting) => setting === meant) ?? settings.find((setting) => looksLike(meant, setting));
}

const NO_ARGUMENT = 'is no argument; settings come from the environment.';

/** Values that need no quotes. Others are not repeated, because a URL can contain a password. */
const PLAIN = /^[\w.,:-]{1,60}$/;

const suggestion = (setting: string, value = ''): string =>
  `${NO_ARGUMENT} Did you mean ${setting}=${PLAIN.test(value) ? value : '…'}?`;
