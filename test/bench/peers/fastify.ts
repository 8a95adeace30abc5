import proxy from '@fastify/http-proxy';
import rateLimit from '@fastify/rate-limit';
import Fastify from 'fastify';
import { Redis } from 'ioredis';
import { type KnownKey, KnownKeys, UNAUTHORIZED } from './known-keys.ts';

/**
 * fastify + @fastify/rate-limit + @fastify/http-proxy. It covers only part of the task: fixed windows of a minute and a
 * day, but no bans, no access log, and no RateLimit headers of the IETF draft.
 */

declare module 'fastify' {
  interface FastifyRequest {
    knownKey: KnownKey | null;
  }
}

const { CORE_URL = '', REDIS_URL = '' } = process.env;

const redis = new Redis(REDIS_URL, { enableAutoPipelining: true, maxRetriesPerRequest: 1, connectTimeout: 500 });
const knownKeys = new KnownKeys(redis);
const app = Fastify({ logger: false });

app.decorateRequest('knownKey', null);
app.addHook('onRequest', async (request, reply) => {
  request.knownKey = (await knownKeys.find(request.headers.authorization)) ?? null;
  if (request.knownKey !== null) return;
  reply.code(401).header('WWW-Authenticate', 'Bearer');
  return await reply.send(UNAUTHORIZED);
});
await app.register(rateLimit, {
  redis,
  timeWindow: 60_000,
  keyGenerator: (request) => request.knownKey?.id ?? '',
  max: (request) => request.knownKey?.minute ?? 0,
});
const checkDay = app.createRateLimit({
  timeWindow: 86_400_000,
  keyGenerator: (request) => `day ${request.knownKey?.id}`,
  max: (request) => request.knownKey?.day ?? 0,
});
app.addHook('preHandler', async (request, reply) => {
  const day = await checkDay(request);
  if (day.isAllowed || !day.isExceeded) return;
  reply.code(429).header('Retry-After', day.ttlInSeconds);
  return await reply.send({ code: 'rate_limit_exceeded', message: 'Too many requests.', status: 429 });
});
await app.register(proxy, {
  upstream: CORE_URL,
  undici: { connections: 128, pipelining: 1, keepAliveTimeout: 4_000 },
  replyOptions: {
    rewriteRequestHeaders: (request, { authorization: _withheld, ...headers }) => ({
      ...headers,
      'x-caller-id': (request as unknown as { knownKey: KnownKey }).knownKey.id,
    }),
  },
});

const url = await app.listen({ host: '127.0.0.1', port: 0 });
process.send?.({ fastify: url });
