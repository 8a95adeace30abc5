import { randomBytes } from 'node:crypto';

/** Follows the frames of a WebSocket in one direction (RFC 6455 §5.2), to insert our own frame between two others. */
export class FrameBoundary {
  #head: number[] = [];
  #payloadLeft = 0;

  get isBetweenFrames(): boolean {
    return this.#head.length === 0 && this.#payloadLeft === 0;
  }

  push(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length) {
      if (this.#payloadLeft > 0) {
        const skipped = Math.min(this.#payloadLeft, chunk.length - at);
        this.#payloadLeft -= skipped;
        at += skipped;
      } else {
        this.#head.push(chunk[at++] as number);
        this.#readHead();
      }
    }
  }

  #readHead(): void {
    const [, second] = this.#head;
    if (second === undefined || this.#head.length < headLength(second)) return;
    this.#payloadLeft = payloadLength(this.#head, second & 0x7f);
    this.#head = [];
  }
}

/** The head has two bytes, an extended length, and a mask. */
function headLength(second: number): number {
  const length = second & 0x7f;
  return 2 + (length === 127 ? 8 : length === 126 ? 2 : 0) + (second & 0x80 ? 4 : 0);
}

function payloadLength(head: readonly number[], length: number): number {
  if (length < 126) return length;
  return head.slice(2, length === 126 ? 4 : 10).reduce((sum, byte) => sum * 256 + byte, 0);
}

/** @param isMasked required for frames of a client (RFC 6455 §5.3) */
export function closeFrame(code: number, isMasked: boolean): Buffer {
  const payload = Buffer.from([code >> 8, code & 0xff]);
  if (!isMasked) return Buffer.concat([Buffer.from([0x88, 2]), payload]);
  const mask = randomBytes(4);
  return Buffer.concat([Buffer.from([0x88, 0x82]), mask, payload.map((byte, at) => byte ^ (mask[at] as number))]);
}
