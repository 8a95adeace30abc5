/** For --import: delays the start of all workers of a gateway except the first. With ENDS_THEN, they then exit. */

const LATER_MS = 4_000;

if (Number(process.argv[2]) > 1) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LATER_MS);
  if (process.env.ENDS_THEN !== undefined) process.exit(3);
}
