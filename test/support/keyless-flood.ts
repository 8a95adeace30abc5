import net from 'node:net';

const CONNECTIONS = 8;
const PIPELINED = 50;
const REQUEST = `GET /v1/${'x'.repeat(1_000)} HTTP/1.1\r\nHost: a\r\n\r\n`;
const ANSWER = /HTTP\/1\.1 \d{3} /g;

/**
 * Sends pipelined requests without a key, for paths of 1 kB, until the given number is answered. Replaces connections
 * that are cut.
 */
export async function floodWithoutKey(gateway: string, requests: number): Promise<void> {
  const { hostname, port } = new URL(gateway);
  let answered = 0;
  const connect = async () => {
    while (answered < requests) {
      const socket = net.connect(Number(port), hostname).on('error', () => {});
      let awaited = 0;
      const ask = () => {
        awaited += PIPELINED;
        socket.write(REQUEST.repeat(PIPELINED));
      };
      socket.on('data', (data) => {
        const answers = data.toString('latin1').match(ANSWER)?.length ?? 0;
        answered += answers;
        awaited -= answers;
        if (answered >= requests) socket.destroy();
        else if (awaited <= 0) ask();
      });
      ask();
      await new Promise((closed) => socket.on('close', closed));
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, connect));
}
