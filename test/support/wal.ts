import { readFile } from 'node:fs/promises';

/** SQLite's write-ahead log (sqlite.org/fileformat.html): a header, and frames of a page each. */

const HEADER_BYTES = 32;
const FRAME_BYTES = 24 + 4_096;

/** Where a frame ends. */
export const frameEnds = (bytes: number): number[] =>
  Array.from({ length: (bytes - HEADER_BYTES) / FRAME_BYTES }, (_, at) => HEADER_BYTES + (at + 1) * FRAME_BYTES);

/** The number of commits: the last frame of each has the size of the database. */
export async function commitsIn(path: string): Promise<number> {
  const bytes = await readFile(path);
  return frameEnds(bytes.length).filter((end) => bytes.readUInt32BE(end - FRAME_BYTES + 4) > 0).length;
}
