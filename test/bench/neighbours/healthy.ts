import { quantile } from '../../support/statistics.ts';
import { NEW_PET } from '../load/asks.ts';
import { OpenLoop } from '../load/open-loop.ts';

/**
 * The healthy client, in its own process. In an open loop, it lists pets, gets single pets and adds a few. It checks
 * the status, the request id and the pet of each response.
 *
 *     HEALTHY='{"url":…,"key":…,"from":"127.0.0.9","readsOnly":false}'
 *
 * A message {"rate":200,"seconds":6} over the IPC channel starts it.
 */

export interface HealthyClient {
  readonly url: string;
  readonly key: string;
  /** The address that it connects from. */
  readonly from: string;
  readonly readsOnly: boolean;
}

export interface Drive {
  readonly rate: number;
  readonly seconds: number;
}

export interface HealthyResult {
  readonly requests: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
  /** The number of errors of each kind. */
  readonly errors: Readonly<Record<string, number>>;
}

interface Request {
  readonly id: string;
  readonly text: string;
  /** What is wrong with a response; undefined if nothing is. */
  fault(status: number, body: string): string | undefined;
}

/** Longer than the gateway waits for its core. */
const PATIENCE_MS = 6_000;
const MAX_CONNECTIONS = 256;
const PETS = 20;
/** One in this many requests adds a pet, half list pets, and the rest get a single pet. */
const MIX = 10;

const { url, key, from, readsOnly } = JSON.parse(process.env.HEALTHY ?? '{}') as HealthyClient;
const { host } = new URL(url);
const loop = new OpenLoop({ url, from, mostConnections: MAX_CONNECTIONS, patienceMs: PATIENCE_MS });

const statusFault = (status: number, wanted: number) => (status === wanted ? undefined : String(status));

function request(number: number): Request {
  const id = `healthy-${process.pid}-${number}`;
  const ours = [`Host: ${host}`, `Authorization: Bearer ${key}`, `X-Request-Id: ${id}`];
  const head = (line: string, ...more: string[]) => [`${line} HTTP/1.1`, ...ours, ...more, '', ''].join('\r\n');
  const turn = number % MIX;
  if (turn === 0 && !readsOnly) {
    const text = head('POST /v1/pets', 'Content-Type: application/json', `Content-Length: ${NEW_PET.length}`) + NEW_PET;
    return { id, text, fault: (status) => statusFault(status, 201) };
  }
  const pet = 1 + (number % PETS);
  const [path, beginning] = turn <= MIX / 2 ? ['', '[{"id":'] : [`/${pet}`, `{"id":${pet},`];
  const fault = (status: number, body: string) =>
    statusFault(status, 200) ?? (body.startsWith(beginning) ? undefined : 'wrong answer');
  return { id, text: head(`GET /v1/pets${path}`), fault };
}

let sent = 0;

async function drive({ rate, seconds }: Drive): Promise<HealthyResult> {
  const latencies: number[] = [];
  const errors: Record<string, number> = {};
  await loop.drive(rate * seconds, rate, (_, due) => {
    const { id, text, fault } = request(sent++);
    const faultOf = (status: number, head: string, body: string) =>
      fault(status, body) ?? (head.includes(`: ${id}\r\n`) ? undefined : 'wrong request id');
    return {
      text,
      ended(answer) {
        latencies.push(performance.now() - due);
        const wrong = typeof answer === 'string' ? answer : faultOf(answer.status, answer.head, answer.body);
        if (wrong !== undefined) errors[wrong] = (errors[wrong] ?? 0) + 1;
      },
    };
  });
  const at = (share: number) => quantile(latencies, share);
  return { requests: latencies.length, p50Ms: at(0.5), p99Ms: at(0.99), maxMs: at(1), errors };
}

process.on('message', async (message: Drive) => process.send?.(await drive(message)));
process.send?.({});
