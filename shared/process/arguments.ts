import { looksLike } from './misspelt.ts';

/** Settings are environment variables. The only argument of a program is `--help`. */

/** Whether the arguments ask what the program is, instead of starting it. */
export const asksForHelp = (given: readonly string[]): boolean => given.includes('--help') || given.includes('-h');

/**
 * The faults of arguments: each argument, and a message that suggests the setting that it resembles. What is neither
 * an option nor a setting's name is reported by its position if it is as long as a token, because it may be one.
 * @param secrets those of the settings whose values must not be repeated
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

/** Values that need no quotes. Others are not repeated: a URL can hold a password. */
const PLAIN = /^[\w.,:-]{1,60}$/;

const suggestion = (setting: string, value = ''): string =>
  `${NO_ARGUMENT} Did you mean ${setting}=${PLAIN.test(value) ? value : '…'}?`;
