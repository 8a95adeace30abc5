import { randomUUID } from 'node:crypto';
import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { DatabaseSync } from 'node:sqlite';
import { pino } from 'pino';
import { keepTickClass } from '../../shared/process/run.ts';

/**
 * The floor of the core's cost: a minimal core in one file that does only the necessary work. It reads and adds pets in
 * SQLite, syncs each commit to disk before it responds, writes logs and counts requests. It has no defences, and
 * accepts any body that JSON.parse accepts.
 */

// As in the core. Without this, the floor would be slower after an idle period.
keepTickClass();
const { DATABASE = '', PORT = '0' } = process.env;
const log = pino({ base: null }, pino.destination({ sync: false, minLength: 4_096 }));
const counts = { requests: 0, milliseconds: 0 };
const database = new DatabaseSync(DATABASE);
database.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
  CREATE TABLE IF NOT EXISTS pets (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, categoryId INTEGER, status TEXT);
  CREATE INDEX IF NOT EXISTS pets_by_status ON pets (status, id)`);
const select = database.prepare('SELECT id, name, categoryId, status FROM pets WHERE id > ? ORDER BY id LIMIT 21');
const one = database.prepare('SELECT id, name, categoryId, status FROM pets WHERE id = ?');
const insert = database.prepare('INSERT INTO pets (name, categoryId, status) VALUES (?, ?, ?) RETURNING *');

interface NewPet {
  readonly name: string;
  readonly categoryId: number;
  readonly status: string;
}

/** A request with its time of arrival. */
interface Call {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly startedAt: number;
}

function answer({ request, response, startedAt }: Call, status: number, value: unknown, link = ''): void {
  const body = JSON.stringify(value);
  const requestId = (request.headers['x-request-id'] as string | undefined) ?? randomUUID();
  const headers = ['Content-Type', 'application/json', 'Content-Length', String(Buffer.byteLength(body))];
  headers.push('X-Request-Id', requestId);
  if (link !== '') headers.push('Link', link);
  response.writeHead(status, headers);
  response.end(body);
  const durationMs = performance.now() - startedAt;
  counts.requests += 1;
  counts.milliseconds += durationMs;
  log.info({ requestId, method: request.method, path: request.url, status, durationMs }, 'request');
}

// Pets that arrive in the same turn of the event loop share one commit.
let waiting: (() => () => void)[] = [];

function commit(): void {
  const writes = waiting;
  waiting = [];
  database.exec('BEGIN IMMEDIATE');
  const answers = writes.map((write) => write());
  database.exec('COMMIT');
  for (const send of answers) send();
}

function add(call: Call): void {
  const { request } = call;
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const { name, categoryId, status } = JSON.parse(Buffer.concat(chunks).toString()) as NewPet;
    const write = () => {
      const pet = insert.get(name, categoryId, status);
      return () => answer(call, 201, pet);
    };
    if (waiting.push(write) === 1) setImmediate(commit);
  });
}

function list(call: Call, after: number): void {
  const pets = select.all(after);
  const page = pets.slice(0, 20);
  const link = pets.length > 20 ? `</v1/pets?after=${page.at(-1)?.id}>; rel="next"` : '';
  answer(call, 200, page, link);
}

function serve(request: IncomingMessage, response: ServerResponse): void {
  const { method, url = '' } = request;
  const call = { request, response, startedAt: performance.now() };
  if (method === 'POST') add(call);
  else if (url.startsWith('/v1/pets/')) answer(call, 200, one.get(Number(url.slice('/v1/pets/'.length))));
  else list(call, Number(new URLSearchParams(url.split('?')[1]).get('after') ?? 0));
}

const server = http.createServer(serve).listen(Number(PORT), '127.0.0.1', () => {
  process.send?.({ core: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
});
