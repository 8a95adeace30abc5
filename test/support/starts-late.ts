/** For --import: delays the start of all workers of a gateway except the first. With ENDS_THEN, they then exit. */

const LATER_MS = 4_000;
/** The first worker must serve before another one exits, or the gateway does not start. */
const ENDS_MS = 8_000;

if (Number(process.argv[2]) > 1) {
  const ends = process.env.ENDS_THEN !== undefined;
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ends ? ENDS_MS : LATER_MS);
  if (ends) process.exit(3);
}
