import { readFile } from 'node:fs/promises';

/** SQLite's write-ahead log (sqlite.org/fileformat.html): a header, then frames with one page each. */

const HEADER_BYTES = 32;
const FRAME_BYTES = 24 + 4_096;

/** The offsets at which frames end. */
export const frameEnds = (bytes: number): number[] =>
  Array.from({ length: (bytes - HEADER_BYTES) / FRAME_BYTES }, (_, at) => HEADER_BYTES + (at + 1) * FRAME_BYTES);

/**
 * The offsets at which commits end. Only the last frame of a commit has the size of the database. Frames of an earlier
 * log have different salts.
 */
export function commitEnds(bytes: Buffer): number[] {
  const salts = bytes.subarray(16, 24);
  return frameEnds(bytes.length).filter((end) => {
    const frame = bytes.subarray(end - FRAME_BYTES, end);
    return frame.readUInt32BE(4) > 0 && frame.subarray(8, 16).equals(salts);
  });
}

export const commitsIn = async (path: string): Promise<number> => commitEnds(await readFile(path)).length;
