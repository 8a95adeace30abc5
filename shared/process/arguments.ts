/** Settings are environment variables. The only argument of a program is `--help`. */

/** Whether the arguments ask for help, in which case the program does not start. */
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

const NO_ARGUMENT = 'is not accepted: settings are environment variables.';

/** Values that need no quotes. Others are not repeated, because a URL can contain a password. */
const PLAIN = /^[\w.,:-]{1,60}$/;

const suggestion = (setting: string, value = ''): string =>
  `${NO_ARGUMENT} Did you mean ${setting}=${PLAIN.test(value) ? value : '…'}?`;

/**
 * Names of one word, such as HOST and PORT, are too similar to other programs' variables (GHOST, PORTS, WORKER). For
 * these names, only two swapped letters count as a slip, because no program uses a word like PROT.
 */
const canBeMeant = (name: string, setting: string): boolean =>
  setting.includes('_') || (name !== setting && sorted(name) === sorted(setting));

const sorted = (text: string): string => [...text].sort().join('');

/**
 * Variables that look like an unset setting, each with that setting. If the setting itself is set, the variable is not
 * considered misspelt.
 * @param given names of the variables that are set
 */
export function misspelt(given: readonly string[], settings: readonly string[]): [name: string, meant: string][] {
  const missing = settings.filter((setting) => !given.includes(setting));
  return given
    .filter((name) => !settings.includes(name))
    .flatMap((name) => {
      const upper = name.toUpperCase();
      const meant = missing.find((setting) => canBeMeant(upper, setting) && looksLike(upper, setting));
      return meant === undefined ? [] : [[name, meant] as [string, string]];
    });
}

/**
 * Accepts a name with one wrong letter or underscore, PROXY for PROXIES, or a name whose end is missing or abbreviated.
 * If two slips were accepted, SSL_CERT_FILE would match TLS_CERT_FILE.
 */
function looksLike(name: string, setting: string): boolean {
  if (/_[A-Z]{2,}$/.test(name) && setting.startsWith(name)) return true;
  const [given, meant] = [name, setting].map((one) => one.replace(/IES$/, 'Y')) as [string, string];
  return isOneSlip(name, setting) || isOneSlip(given, meant);
}

/** Whether at most one letter is added, removed, changed, or swapped with its neighbour. */
function isOneSlip(a: string, b: string): boolean {
  let same = 0;
  while (same < a.length && a[same] === b[same]) same++;
  const [x, y] = [a.slice(same), b.slice(same)];
  const isSwap = x[0] === y[1] && x[1] === y[0] && x.slice(2) === y.slice(2);
  return isSwap || x.slice(1) === y.slice(1) || x.slice(1) === y || x === y.slice(1);
}
