/** Keys as clients present them, real or made up. */

/** A made-up key with a correct checksum: CRC-32 in six base-62 digits. */
export function withCheck(unchecked: string): string {
  const digits = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
  let crc = 0xffff_ffff;
  for (const character of unchecked) {
    crc ^= character.charCodeAt(0);
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb8_8320 : crc >>> 1;
  }
  let rest = BigInt((crc ^ 0xffff_ffff) >>> 0);
  let check = '';
  while (check.length < 6) {
    check = digits[Number(rest % 62n)] + check;
    rest /= 62n;
  }
  return unchecked + check;
}
