/** Of every cluster. */
export const SLOTS = 16_384;

/** The cluster slot of all keys that have `tag` in braces: CRC-16/XMODEM of it (Redis Cluster specification, appendix A). */
export function slotOf(tag: string): number {
  let crc = 0;
  for (const byte of Buffer.from(tag)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? ((crc << 1) ^ 0x1021) & 0xffff : crc << 1;
  }
  return crc % SLOTS;
}
