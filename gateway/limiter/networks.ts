import ipaddr from 'ipaddr.js';

/**
 * Addresses and networks as decide.lua and this file compare them: the IP version, then hex digits. `10.0.0.1` is
 * `4:0a000001`. A network consists of the digits that its prefix covers, and the prefix length in bits: `10.0.0.0/9`
 * is `4:0a0/9`.
 */

const BITS_A_DIGIT = 4;
const VERSION_LENGTH = '4:'.length;
/** Bits before the IPv4 address in an IPv4-mapped IPv6 address (RFC 4291 §2.5.5.2). */
const BITS_BEFORE_IPV4 = 96;

/** @returns undefined for anything but an address or a CIDR block, and for a block with bits set after its prefix */
export function parseNetwork(text: string): string | undefined {
  const [, address = '', length] = /^([0-9a-fA-F.:]+)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const digits = addressDigits(address);
  if (digits === '') return undefined;
  const most = (digits.length - VERSION_LENGTH) * BITS_A_DIGIT;
  const isMapped = address.includes(':') && digits.startsWith('4:');
  const bits = length === undefined ? most : Number(length) - (isMapped ? BITS_BEFORE_IPV4 : 0);
  if (bits < 0 || bits > most || !isClear(digits, bits)) return undefined;
  return `${digits.slice(0, VERSION_LENGTH + Math.ceil(bits / BITS_A_DIGIT))}/${bits}`;
}

const NETWORK = /^([46]:[\da-f]*)\/(0|[1-9]\d{0,2})$/;

/** Whether a string, possibly typed by hand, is a network. A malformed network contains no address. */
export function isNetwork(text: string): boolean {
  const [, digits = '', bits] = NETWORK.exec(text) ?? [];
  const most = digits.startsWith('4') ? 32 : 128;
  return (
    bits !== undefined &&
    Number(bits) <= most &&
    digits.length === VERSION_LENGTH + Math.ceil(Number(bits) / BITS_A_DIGIT)
  );
}

/** The network in CIDR notation. Returns a string that is not a network unchanged. */
export function describeNetwork(network: string): string {
  if (!isNetwork(network)) return network;
  const [digits = '', bits] = network.split('/');
  const size = digits.startsWith('4:') ? 8 : 32;
  const bytes = Buffer.from(digits.slice(VERSION_LENGTH).padEnd(size, '0'), 'hex');
  return `${ipaddr.fromByteArray([...bytes])}/${bits}`;
}

/** An IPv4-mapped IPv6 address counts as the IPv4 address. @returns '' for anything but an address */
export function addressDigits(address: string): string {
  if (!isAddress(address)) return '';
  const parsed = ipaddr.process(address);
  return `${parsed.kind() === 'ipv4' ? 4 : 6}:${Buffer.from(parsed.toByteArray()).toString('hex')}`;
}

/** @param own the digits of an address. The empty string is in no network */
export function isWithin(network: string, own: string): boolean {
  const [digits = '', bits] = network.split('/');
  const whole = VERSION_LENGTH + Math.floor(Number(bits) / BITS_A_DIGIT);
  const shift = BITS_A_DIGIT - (Number(bits) % BITS_A_DIGIT);
  if (own === '' || !isNetwork(network) || own.slice(0, whole) !== digits.slice(0, whole)) return false;
  return shift === BITS_A_DIGIT || digitAt(own, whole) >> shift === digitAt(digits, whole) >> shift;
}

const isAddress = (text: string): boolean =>
  text.includes(':') ? ipaddr.IPv6.isValid(text) && !text.includes('%') : ipaddr.IPv4.isValidFourPartDecimal(text);

const digitAt = (digits: string, at: number): number => Number.parseInt(digits[at] ?? '0', 16);

/** Whether all bits after the prefix are 0: `10.1.2.3/8` is probably a mistake. */
function isClear(digits: string, bits: number): boolean {
  const whole = VERSION_LENGTH + Math.floor(bits / BITS_A_DIGIT);
  const rest = digitAt(digits, whole) & (0xf >> (bits % BITS_A_DIGIT));
  return rest === 0 && /^0*$/.test(digits.slice(whole + 1));
}
