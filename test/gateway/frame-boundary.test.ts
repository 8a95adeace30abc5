import fc from 'fast-check';
import { expect, test } from 'vitest';
import { closeFrame, FrameBoundary } from '../../gateway/upstream/tunnel.ts';

/** Returns a frame (RFC 6455 §5.2) whose payload looks like a frame header. */
function frame(length: number, isMasked: boolean): Buffer {
  const mask = isMasked ? 0x80 : 0;
  const head = Buffer.alloc(length < 126 ? 2 : length < 65_536 ? 4 : 10);
  head[0] = 0x82;
  head[1] = mask | (length < 126 ? length : length < 65_536 ? 126 : 127);
  if (head.length === 4) head.writeUInt16BE(length, 2);
  if (head.length === 10) head.writeBigUInt64BE(BigInt(length), 2);
  return Buffer.concat([head, Buffer.alloc(isMasked ? 4 : 0, 0x88), Buffer.alloc(length, 0x88)]);
}

const length = fc.oneof(fc.integer({ min: 0, max: 300 }), fc.constantFrom(125, 126, 65_535, 65_536, 70_000));
const frames = fc.array(fc.tuple(length, fc.boolean()), { minLength: 1, maxLength: 6 });

test('the end of each WebSocket frame is found, however frames are split into chunks', () => {
  const cuts = fc.array(fc.integer({ min: 1, max: 5_000 }), { minLength: 1, maxLength: 20 });
  fc.assert(
    fc.property(frames, cuts, (shapes, sizes) => {
      const all = shapes.map(([size, isMasked]) => frame(size, isMasked));
      const ends = new Set(all.map((_, at) => Buffer.concat(all.slice(0, at + 1)).length));
      const bytes = Buffer.concat(all);
      const boundary = new FrameBoundary();
      for (let at = 0, turn = 0; at < bytes.length; turn++) {
        const next = Math.min(bytes.length, at + (sizes[turn % sizes.length] as number));
        boundary.push(bytes.subarray(at, next));
        at = next;
        expect(boundary.isBetweenFrames).toBe(ends.has(at));
      }
      expect(boundary.isBetweenFrames).toBe(true);
    }),
    { numRuns: 200 },
  );
});

test('a close frame is complete, and masked if a client sends it', () => {
  expect([...closeFrame(1_001, false)]).toEqual([0x88, 2, 0x03, 0xe9]);
  const [, , ...rest] = closeFrame(1_008, true);
  const [mask, payload] = [rest.slice(0, 4), rest.slice(4)];
  expect(payload.map((byte, at) => byte ^ (mask[at] as number))).toEqual([0x03, 0xf0]);
  const boundary = new FrameBoundary();
  boundary.push(closeFrame(1_008, true));
  expect(boundary.isBetweenFrames).toBe(true);
});
