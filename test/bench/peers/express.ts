import http from 'node:http';
import type { AddressInfo } from 'node:net';
import express, { type Request, type Response } from 'express';
import { rateLimit } from 'express-rate-limit';
import { createProxyMiddleware } from 'http-proxy-middleware';
import { Redis } from 'ioredis';
import { type RedisReply, RedisStore } from 'rate-limit-redis';
import { type KnownKey, KnownKeys, UNAUTHORIZED } from './known-keys.ts';

/**
 * express + express-rate-limit + rate-limit-redis + http-proxy-middleware. It covers only part of the task: fixed
 * windows of a minute and a day, but no bans, no access log, and no RateLimit headers of the IETF draft.
 */

const { CORE_URL = '', REDIS_URL = '' } = process.env;

const redis = new Redis(REDIS_URL, { enableAutoPipelining: true, maxRetriesPerRequest: 1, connectTimeout: 500 });
const knownKeys = new KnownKeys(redis);
const app = express();
app.disable('x-powered-by');
app.disable('etag');

app.use(async (request, response, next) => {
  const key = await knownKeys.find(request.headers.authorization);
  if (key === undefined) {
    response.set('WWW-Authenticate', 'Bearer').status(401);
    response.json(UNAUTHORIZED);
    return;
  }
  response.locals.key = key;
  delete request.headers.authorization;
  request.headers['x-caller-id'] = key.id;
  next();
});
const keyOf = (response: Response): KnownKey => response.locals.key as KnownKey;
const limitOf = (name: 'minute' | 'day', windowMs: number) =>
  rateLimit({
    windowMs,
    limit: (_request, response) => keyOf(response)[name],
    keyGenerator: (_request, response) => keyOf(response).id,
    legacyHeaders: name === 'minute',
    standardHeaders: false,
    validate: false,
    store: new RedisStore({
      prefix: `${name}:`,
      sendCommand: (command: string, ...args: string[]) => redis.call(command, ...args) as Promise<RedisReply>,
    }),
  });
app.use(limitOf('minute', 60_000), limitOf('day', 86_400_000));
// Node's default agent would close idle connections beyond 256.
const agent = new http.Agent({ keepAlive: true, maxFreeSockets: 1_024 });
app.use(createProxyMiddleware<Request, Response>({ target: CORE_URL, agent }));

const server = app.listen(0, '127.0.0.1', () => {
  process.send?.({ express: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
});
