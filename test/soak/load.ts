import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import { BOUNDLESS } from '../bench/setup/keys.ts';
import { idOf } from '../support/api-key.ts';
import { type Answer, post, send } from '../support/http.ts';
import { type Disturbance, LOG_LAG_MS, type SoakRecord } from './record.ts';
import { CORE_TIMEOUT_MS, type Stage } from './stage.ts';

/** A kind of client: what it sends, and which answers it may get, normally and while a part fails. */
interface Kind {
  readonly name: string;
  readonly clients: number;
  readonly pauseMs: number;
  readonly promised: readonly number[];
  /** The additional outcomes that are allowed while a part fails. */
  readonly excused: Partial<Record<Disturbance['kind'], readonly (number | string)[]>>;
  /** Set for an internal service, which calls the cores directly. */
  readonly isInternal?: true;
  ask(url: string, agent: http.Agent, requestId: string): Promise<Answer>;
}

/** A failed read is retried on the other core if there is time; a write that may have arrived is never retried. */
const READ = { core: [504], database: [503] };
const WRITE = { core: [502, 504, 'ECONNRESET', 'aborted'], database: [503] };
const CUT = ['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'socket hang up'];

/** The allowance of the metered keys, whose admissions are counted. They are never banned. */
export const METERED = { capacity: 60, windowMs: 60_000 };
const METERED_KEYS = 6;

/** The maximum time for a response: the sum of the time limits for the core and for the decision. */
const LONGEST_MS = CORE_TIMEOUT_MS + 1_500;

/** Well below the gateway's idle timeout of 5 s, so that no client uses a connection just as the gateway closes it. */
const IDLE_MS = 2_000;

export interface Load {
  /** The names of all pets that were acknowledged. */
  readonly acknowledged: ReadonlySet<string>;
  /** Cuts every connection of every client. */
  cutClients(): void;
  stop(): Promise<void>;
}

/** Sends the load of all kinds of clients to the gateways until it is stopped. */
export async function startLoad(stage: Stage, record: SoakRecord): Promise<Load> {
  const acknowledged = new Set<string>();
  const kinds = await kindsOf(stage, record, acknowledged);
  const leaversKey = await stage.issueKey(BOUNDLESS);
  let agents = new Map<string, http.Agent>();
  const renewAgents = () => {
    const old = agents;
    const newAgent = () => new http.Agent({ keepAlive: true, maxSockets: 128, timeout: IDLE_MS });
    agents = new Map([...stage.urls, ...stage.coreUrls].map((url) => [url, newAgent()]));
    cuts += 1;
    for (const agent of old.values()) agent.destroy();
  };
  let cuts = 0;
  let number = 0;
  let running = true;
  renewAgents();

  const client = async (kind: Kind, at: number) => {
    for (let turn = at; running; turn++) {
      const reached = kind.isInternal ? stage.coreUrls : stage.urls;
      const url = reached[turn % reached.length] as string;
      const agent = agents.get(url) as http.Agent;
      const cutsBefore = cuts;
      const outcome = await observe(kind, url, agent, `soak-${++number}`);
      if (outcome.answer !== undefined || cuts === cutsBefore) check(record, kind, outcome);
      await sleep(kind.pauseMs * (0.5 + Math.random()));
    }
  };
  const leaver = async () => {
    while (running) {
      await leave(stage.urls[0] as string, leaversKey);
      record.count('left');
    }
  };
  const clients = kinds.flatMap((kind) => Array.from({ length: kind.clients }, (_, at) => client(kind, at)));
  clients.push(leaver());

  return {
    acknowledged,
    cutClients: renewAgents,
    async stop() {
      running = false;
      await Promise.all(clients);
      for (const agent of agents.values()) agent.destroy();
    },
  };
}

async function kindsOf(stage: Stage, record: SoakRecord, acknowledged: Set<string>): Promise<Kind[]> {
  const boundless = await stage.issueKey(BOUNDLESS);
  const banned = await stage.issueKey({ plan: 'pro', minute: 10 });
  const metered = await Promise.all(Array.from({ length: METERED_KEYS }, () => stage.issueKey({ plan: 'free' })));
  const get = (url: string, key: string, agent: http.Agent, id: string, path = '/v1/pets?limit=10') =>
    send(url + path, { key, agent, headers: { 'x-request-id': id } });
  let turn = 0;
  return [
    {
      name: 'read',
      clients: 12,
      pauseMs: 40,
      promised: [200],
      excused: READ,
      ask: (url, agent, id) => get(url, boundless, agent, id),
    },
    {
      name: 'write',
      clients: 6,
      pauseMs: 60,
      promised: [201],
      excused: WRITE,
      async ask(url, agent, id) {
        const pet = { name: id, categoryId: 1 };
        const answer = await post(`${url}/v1/pets`, pet, { key: boundless, agent, headers: { 'x-request-id': id } });
        if (answer.status === 201) acknowledged.add(id);
        return answer;
      },
    },
    {
      name: 'over its limit',
      clients: 6,
      pauseMs: 60,
      promised: [200, 429],
      excused: READ,
      async ask(url, agent, id) {
        const key = metered[turn++ % metered.length] as string;
        const sentAt = performance.now();
        const answer = await get(url, key, agent, id, '/v1/store/orders');
        const admitted = answer.status === 200;
        record.metered({ key: idOf(key), sentAt, answeredAt: performance.now(), admitted });
        return answer;
      },
    },
    {
      name: 'banned',
      clients: 2,
      pauseMs: 60,
      promised: [200, 429],
      excused: READ,
      ask: (url, agent, id) => get(url, banned, agent, id),
    },
    {
      name: 'unknown',
      clients: 2,
      pauseMs: 60,
      promised: [401, 429],
      excused: { redis: [503] },
      ask: (url, agent, id) => get(url, createApiKey().apiKey, agent, id),
    },
    {
      name: 'internal',
      clients: 2,
      pauseMs: 40,
      promised: [200],
      excused: { core: CUT, restart: CUT, database: [503] },
      isInternal: true,
      ask: (url, agent, id) => send(`${url}/v1/pets?limit=10`, { agent, headers: { 'x-request-id': id } }),
    },
  ];
}

async function observe(kind: Kind, url: string, agent: http.Agent, id: string) {
  const sentAt = performance.now();
  let fault: unknown;
  const answer = await kind.ask(url, agent, id).catch((thrown: unknown) => {
    fault = thrown;
    return undefined;
  });
  return { url, answer, fault, id, sentAt, endedAt: performance.now() };
}

/** Counts an outcome, and reports it if it is neither promised nor excused. */
function check(record: SoakRecord, kind: Kind, observed: Awaited<ReturnType<typeof observe>>): void {
  const { url, answer, fault, id, sentAt, endedAt } = observed;
  const seen = answer?.status ?? `${(fault as NodeJS.ErrnoException).code ?? (fault as Error).message}`;
  const isError = typeof seen === 'string' || seen >= 500;
  record.count('requests');
  record.count(`${isError ? 'error' : 'status'} ${kind.name}: ${seen}`);
  record.count(isError ? 'errors' : seen === 200 || seen === 201 ? 'admitted' : 'refused');
  record.took(endedAt - sentAt);
  const complain = (what: string) => record.broke(`${what}: ${kind.name}, ${id}, ${seen}`);

  if (endedAt - sentAt > LONGEST_MS) complain(`answered after ${Math.round(endedAt - sentAt)} ms`);
  const isExcused = () =>
    (Object.keys(kind.excused) as Disturbance['kind'][]).some(
      (cause) => includes(kind.excused[cause], seen) && record.wasDisturbed(cause, sentAt, endedAt),
    );
  // An outage in a gateway's log may excuse the outcome, which is therefore judged once the log lines have arrived.
  if (!includes(kind.promised, seen))
    setTimeout(() => isExcused() || complain('this outcome is not promised'), 2 * LOG_LAG_MS);
  if (answer !== undefined) checkHeaders(answer, id, kind.isInternal ? [] : LIMIT_HEADERS, complain);
  if (answer !== undefined && answer.status >= 500)
    record.failed({ url, status: answer.status, requestId: id, at: sentAt });
}

const includes = (outcomes: readonly unknown[] | undefined, seen: unknown) => outcomes?.includes(seen) === true;

const LIMIT_HEADERS = ['x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset'];

function checkHeaders(
  { status, headers, json }: Answer,
  id: string,
  counts: readonly string[],
  complain: (what: string) => void,
): void {
  for (const name of counts) if (!/^\d+$/.test(String(headers[name]))) complain(`${name} is ${headers[name]}`);
  if ((status === 429 || status === 503) && !/^\d+$/.test(String(headers['retry-after']))) complain('no Retry-After');
  if (headers['x-request-id'] !== id) complain(`the X-Request-Id is ${headers['x-request-id']}`);
  const isWhole = status === 200 ? Array.isArray(json) : typeof json === 'object' && json !== null;
  if (!isWhole) complain('an invalid body');
}

/** Sends a request and disconnects before the whole answer can have arrived. */
async function leave(url: string, key: string): Promise<void> {
  const headers = { authorization: `Bearer ${key}` };
  const request = http.get(`${url}/v1/pets?limit=100`, { agent: false, headers }).on('error', () => {});
  await sleep(Math.random() * 20);
  request.destroy();
  await sleep(50);
}
