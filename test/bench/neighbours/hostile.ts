import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { send } from '../../support/http.ts';
import { makeUpKeys } from '../setup/keys.ts';
import { askOnce, flood, keepConnected, paced, type Target, tally } from './flood.ts';

/**
 * A hostile client, in its own process at low priority. All its actions are bounded in count and rate, so that any
 * effect on the healthy client comes through the gateway, and not from a shortage of CPU on the machine.
 *
 *     HOSTILE='{"name":"keyless","url":…,"from":"127.0.0.2","keys":{…}}' node test/bench/neighbours/hostile.ts
 */

export interface Hostile extends Target {
  readonly name: HostileName;
  /** The operators' listener. */
  readonly admin: { readonly url: string; readonly token: string };
  readonly keys: {
    /** A key whose requests are never refused. */
    readonly boundless: string;
    readonly over: string;
    readonly banned: string;
  };
}

export type HostileName = keyof typeof HOSTILE;

/** Requests per second. */
const FLOOD = 5_000;
const BODY_BYTES_PER_SECOND = 40_000_000;
const CHUNK = `10000\r\n${'x'.repeat(65_536)}\r\n`;
const LONG_PATH = `/v1/${'x'.repeat(1_000)}`;
const LARGE = 100_000;
const HUGE = 100_000_000;

const PETS = '/v1/pets';
const post = (key: string, framing: string): string =>
  `POST ${PETS} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nAuthorization: Bearer ${key}\r\n${framing}\r\n\r\n`;

function get(key: string | undefined, path = PETS, more: readonly string[] = []): string {
  const authorization = key === undefined ? [] : [`Authorization: Bearer ${key}`];
  return [`GET ${path} HTTP/1.1`, 'Host: a', ...authorization, ...more, '', ''].join('\r\n');
}

/** Returns the items in turn, repeatedly. */
function inTurn<T>(items: readonly T[]): () => T {
  let at = -1;
  return () => items[++at % items.length] as T;
}

const repeat = (times: number, act: (number: number) => void): void => {
  for (let number = 0; number < times; number++) act(number);
};

/** Keeps this many connections open. Each sends `first` and then `more` at a fixed interval. */
function hold(target: Target, connections: number, first: string, more: string, everyMs: number): void {
  repeat(connections, () =>
    keepConnected(target, (socket) => {
      socket.resume();
      if (first !== '') socket.write(first);
      if (more === '') return undefined;
      const timer = setInterval(() => socket.write(more), everyMs);
      return () => clearInterval(timer);
    }),
  );
}

const lines = (count: number, line: (number: number) => string): string[] =>
  Array.from({ length: count }, (_, number) => line(number));

/** Three kinds of headers, each of a given size. */
const HEADERS: readonly ((size: number) => string[])[] = [
  (size) => lines(size, (number) => `X-${number}: a`),
  (size) => lines(size, (number) => `Connection: x${number}`),
  (size) => [`X: ${'x'.repeat(15 * size)}`],
];
const SIZES = [990, 700, 500, 250, 100, 60, 30, 10];

/** For each kind of headers, the largest request that the gateway answers with 200. */
async function mostAccepted(of: Hostile): Promise<string[]> {
  const requests: string[] = [];
  for (const kind of HEADERS)
    for (const size of SIZES) {
      const request = get(of.keys.boundless, PETS, kind(size));
      if (!(await askOnce(of, request)).startsWith('HTTP/1.1 200')) continue;
      requests.push(request);
      break;
    }
  return requests;
}

const BEYOND: readonly string[][] = [
  lines(994, () => 'a: b'),
  lines(400, (number) => `Connection: x${number}`),
  [`Connection: ${lines(2_000, (number) => `x${number}`).join(',')}`],
  [`X: ${'x'.repeat(30_000)}`],
];
const beyond = ({ keys }: Hostile): string[] => BEYOND.map((headers) => get(keys.boundless, PETS, headers));

/** Lists all keys by use, page by page, in a loop. */
async function listKeys({ url, token }: Hostile['admin']): Promise<never> {
  for (let offset = '0'; ; ) {
    const { status, json } = await send(`${url}/keys?sort=used&offset=${encodeURIComponent(offset)}`, { key: token });
    tally[status] = (tally[status] ?? 0) + 1;
    offset = (json as { next?: string }).next ?? '0';
  }
}

/** What each hostile client does to the gateway. */
const HOSTILE = {
  'slow-reads': (of: Hostile) =>
    flood(of, { connections: 1, perSecond: 10, next: () => get(of.keys.boundless, `${PETS}?wait=2000`) }),

  'slow-bodies': (of: Hostile) => hold(of, 500, post(of.keys.boundless, 'Content-Length: 60000'), ' ', 500),

  'endless-bodies'(of: Hostile) {
    const framings = ['Transfer-Encoding: chunked', 'Content-Length: 1000000000'];
    const heads = inTurn(framings.map((framing) => post(of.keys.boundless, framing)));
    const sockets = new Set<Socket>();
    repeat(32, () =>
      keepConnected(of, (socket) => {
        socket.resume();
        socket.write(heads());
        sockets.add(socket);
        return () => void sockets.delete(socket);
      }),
    );
    paced(BODY_BYTES_PER_SECOND / CHUNK.length, (times) => {
      for (const socket of [...sockets].slice(0, times)) if (!socket.writableNeedDrain) socket.write(CHUNK);
    });
  },

  'sends-on'(of: Hostile) {
    const head = `POST ${PETS} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n`;
    const open = (socket: Socket) => {
      socket.resume();
      socket.write(head);
      const timer = setInterval(() => socket.writableNeedDrain || socket.write(CHUNK), 5);
      return () => clearInterval(timer);
    };
    repeat(32, () => keepConnected(of, open, true));
  },

  'slow-readers'(of: Hostile) {
    let left = 200;
    const open = () =>
      keepConnected(of, (socket) => {
        socket.pause();
        socket.write(get(of.keys.boundless, `${PETS}?bytes=${LARGE}`).repeat(50));
        return undefined;
      });
    paced(10, (times) => {
      for (let opened = 0; opened < times && left > 0; opened++, left--) open();
    });
  },

  keyless: (of: Hostile) => flood(of, { connections: 256, perSecond: FLOOD, next: () => get(undefined) }),

  'keyless-pipelined': (of: Hostile) =>
    flood(of, { connections: 8, perSecond: FLOOD, burst: 1_000, next: () => get(undefined) }),

  'long-paths': (of: Hostile) =>
    flood(of, { connections: 8, perSecond: 2 * FLOOD, burst: 100, next: () => get(undefined, LONG_PATH) }),

  'made-up-keys'(of: Hostile) {
    const keys = inTurn(makeUpKeys());
    flood(of, { connections: 10, perSecond: FLOOD, burst: 64, next: () => get(keys()) });
  },

  'over-limit': (of: Hostile) => flood(of, { connections: 64, perSecond: FLOOD, next: () => get(of.keys.over) }),

  banned: (of: Hostile) => flood(of, { connections: 512, perSecond: FLOOD, next: () => get(of.keys.banned) }),

  async 'most-headers'(of: Hostile) {
    flood(of, { connections: 16, perSecond: 200, next: inTurn(await mostAccepted(of)) });
  },

  'too-many-headers': (of: Hostile) => flood(of, { connections: 16, perSecond: 200, next: inTurn(beyond(of)) }),

  idle(of: Hostile) {
    hold(of, 500, '', '', 0);
    hold(of, 500, get(of.keys.boundless), '', 0);
  },

  'huge-answers': (of: Hostile) =>
    flood(of, { connections: 1, perSecond: 1, next: () => get(of.keys.boundless, `${PETS}?bytes=${HUGE}`) }),

  'busy-core': (of: Hostile) => flood(of, { connections: 200, perSecond: FLOOD, next: () => get(of.keys.boundless) }),

  'operators-list': (of: Hostile) => repeat(10, () => void listKeys(of.admin)),

  async 'stuck-connection'(of: Hostile) {
    await sleep(2_000);
    flood(of, { connections: 1, perSecond: 5, next: () => get(of.keys.boundless, `${PETS}?stick=1`) });
  },
} as const;

const hostile = JSON.parse(process.env.HOSTILE ?? '{}') as Hostile;
setInterval(() => process.send?.(tally), 200);
process.on('disconnect', () => process.exit(0));
await HOSTILE[hostile.name](hostile);
