import { expect, test } from 'vitest';
import { type Dice, dice, FUZZ_SECONDS, FUZZ_SEED, unhandled } from '../support/fuzz.ts';
import { send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';
import { CORPUS, type Stream, streamsOf } from './corpus/corpus.ts';
import { play } from './play.ts';

/** Makes random changes to hostile byte streams and valid requests. */

const BATCH = 64;
const PIECES = [
  ...['\r\n', '\n', '\r', '\0', ' ', ':', ',', ';', '%00', '../', '0\r\n\r\n', ' HTTP/1.1\r\n', '\xff\xfe'],
  ...['Transfer-Encoding: chunked\r\n', 'Content-Length: 7\r\n', 'Host: b\r\n', 'Expect: 100-continue\r\n'],
  ...['Connection: close\r\n', 'Upgrade: h2c\r\n', 'GET /v1/pets HTTP/1.1\r\nHost: a\r\n\r\n', '9'.repeat(400)],
];

/**
 * Makes one change at a random position: inserts a piece, replaces a byte, removes, duplicates or upper-cases a range,
 * truncates the stream, or replaces the rest with the end of another stream.
 */
function change(text: string, roll: Dice, other: string): string {
  const at = roll(text.length + 1);
  const until = Math.min(text.length, at + 1 + roll(24));
  const stretch = text.slice(at, until);
  const changes = [
    () => text.slice(0, at) + PIECES[roll(PIECES.length)] + text.slice(at),
    () => text.slice(0, at) + String.fromCharCode(roll(256)) + text.slice(at + 1),
    () => text.slice(0, at) + text.slice(until),
    () => text.slice(0, until) + stretch + text.slice(until),
    () => text.slice(0, at) + other.slice(roll(other.length + 1)),
    () => text.slice(0, at) + stretch.toUpperCase() + text.slice(until),
    () => text.slice(0, at),
  ];
  return changes[roll(changes.length)]?.() ?? text;
}

function mutant(streams: readonly Stream[], roll: Dice, number: number): Stream {
  const { name, writes, cut } = streams[roll(streams.length)] as Stream;
  const other = streams[roll(streams.length)]?.writes[0] ?? '';
  const changed = [...writes];
  for (let left = 1 + roll(4); left > 0; left--) {
    const at = roll(changed.length);
    changed[at] = change(changed[at] ?? '', roll, other);
  }
  return { id: String(number), name, writes: changed, ...(cut && { cut }) };
}

test(
  `${FUZZ_SECONDS} s of mutated bytes cause no 5xx or unhandled error, and the gateway still works afterwards`,
  async () => {
    const stack = await startStack();
    const key = await stack.issueKey({ plan: 'enterprise', minute: 100_000_000, day: 100_000_000 });
    const faults = unhandled();
    const streams = streamsOf(CORPUS, key);
    const roll = dice(FUZZ_SEED);
    const end = performance.now() + FUZZ_SECONDS * 1_000;
    for (let number = 0; performance.now() < end; number += BATCH) {
      const batch = Array.from({ length: BATCH }, (_, at) => mutant(streams, roll, number + at));
      const answers = await play(stack.gateway, batch);
      const logged = stack.log.splice(0);
      const bad = batch.filter(({ id }) => /^HTTP\/1\.1 5(?!05)/m.test(answers.get(id) ?? ''));
      const known = logged.filter(({ status, level }) => (Number(status) >= 500 && status !== 505) || level >= 50);
      if (bad.length + known.length + faults.length > 0) {
        const input = JSON.stringify(bad.length > 0 ? bad : batch);
        expect.fail(`seed ${FUZZ_SEED}, stream ${number}: ${JSON.stringify(known)} ${faults.map(String)} ${input}`);
      }
    }
    expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
  },
  FUZZ_SECONDS * 1_000 + 60_000,
);
