import net, { type Socket } from 'node:net';

/** Plain connections for hostile clients, which send at a bounded rate and count the responses. */

export interface Target {
  readonly url: string;
  /** The address to connect from. */
  readonly from: string;
}

/** The responses by status, and the number of connections that the gateway closed. */
export const tally: Record<string, number> = {};

const count = (what: string): void => {
  tally[what] = (tally[what] ?? 0) + 1;
};

/** New connections per second. */
const RECONNECTS = 500;
const TICK_MS = 5;
/** Limits the burst after a pause of this process. Requests that became due in a longer pause are not sent. */
const MOST_TICKS = 4;
const STATUS_LINE = Buffer.from('HTTP/1.1 ');

/** Counts the responses that begin in the received bytes of a connection. */
function countAnswers(socket: Socket, onAnswer: () => void): void {
  let tail = Buffer.alloc(0);
  socket.on('data', (chunk: Buffer) => {
    const bytes = Buffer.concat([tail, chunk]);
    let from = 0;
    for (let at = bytes.indexOf(STATUS_LINE); at !== -1; at = bytes.indexOf(STATUS_LINE, from)) {
      if (at + STATUS_LINE.length + 3 > bytes.length) break;
      from = at + STATUS_LINE.length + 3;
      count(bytes.toString('latin1', from - 3, from));
      onAnswer();
    }
    tail = bytes.subarray(Math.max(from, bytes.length - STATUS_LINE.length - 2));
  });
}

const ended: (() => void)[] = [];
paced(RECONNECTS, (times) => {
  for (const connectAgain of ended.splice(0, times)) connectAgain();
});

/**
 * Opens a connection, and reopens it whenever it is closed. `onConnect` may return a function to call on each close.
 * @param sendsOn whether the client keeps sending after the gateway has closed its side
 */
export function keepConnected(
  { url, from }: Target,
  onConnect: (socket: Socket) => (() => void) | undefined,
  sendsOn = false,
): void {
  const { hostname, port } = new URL(url);
  const options = { localAddress: from, noDelay: true, allowHalfOpen: sendsOn };
  const socket = net.connect({ host: hostname, port: Number(port), ...options });
  let atEnd: (() => void) | undefined;
  socket.on('error', () => {});
  if (!sendsOn) socket.on('end', () => socket.destroy());
  socket.on('close', () => {
    count('ended');
    atEnd?.();
    ended.push(() => keepConnected({ url, from }, onConnect, sendsOn));
  });
  socket.once('connect', () => {
    count('connections');
    atEnd = onConnect(socket);
  });
}

/** Calls `act` this many times per second, a few at a time. */
export function paced(perSecond: number, act: (times: number) => void): void {
  let last = performance.now();
  let owed = 0;
  setInterval(() => {
    const now = performance.now();
    owed += (Math.min(now - last, MOST_TICKS * TICK_MS) / 1_000) * perSecond;
    last = now;
    const times = Math.floor(owed);
    owed -= times;
    if (times > 0) act(times);
  }, TICK_MS);
}

/**
 * Sends one request on a new connection.
 * @returns the beginning of the response, or '' if the connection is closed without one
 */
export function askOnce({ url, from }: Target, request: string): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const { hostname, port } = new URL(url);
  const socket = net.connect({ host: hostname, port: Number(port), localAddress: from });
  socket.on('error', () => {});
  socket.once('close', () => resolve(''));
  socket.once('data', (chunk) => {
    resolve(chunk.toString('latin1'));
    socket.destroy();
  });
  socket.write(request);
  return promise;
}

export interface Flood {
  readonly connections: number;
  /** Requests per second across all connections. */
  readonly perSecond: number;
  /** The number of requests pipelined in one write. The next ones follow once all of these have been answered. */
  readonly burst?: number;
  /** The next complete request. */
  next(): string;
}

interface Lane {
  readonly socket: Socket;
  underWay: number;
}

/** Sends requests at a bounded rate, on the connections in turn. */
export function flood(target: Target, { connections, perSecond, burst = 1, next }: Flood): void {
  const lanes: Lane[] = [];
  for (let number = 0; number < connections; number++)
    keepConnected(target, (socket) => {
      const lane: Lane = { socket, underWay: 0 };
      lanes.push(lane);
      countAnswers(socket, () => {
        lane.underWay -= 1;
      });
      return () => void lanes.splice(lanes.indexOf(lane), 1);
    });
  paced(perSecond / burst, (times) => {
    for (const lane of nextFree(lanes, times)) {
      lane.underWay = burst;
      lane.socket.write(Array.from({ length: burst }, next).join(''));
    }
  });
}

/** Returns at most this many idle lanes, and moves the lanes that it has checked to the end of the list. */
function nextFree(lanes: Lane[], most: number): Lane[] {
  const free: Lane[] = [];
  for (let looked = 0, all = lanes.length; looked < all && free.length < most; looked++) {
    const lane = lanes.shift() as Lane;
    lanes.push(lane);
    if (lane.underWay <= 0) free.push(lane);
  }
  return free;
}
