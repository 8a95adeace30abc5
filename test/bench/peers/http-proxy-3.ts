import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { createProxyServer } from 'http-proxy-3';
import { parseApiKey } from '../../../gateway/limiter/credential.ts';
import type { Decision } from '../../../gateway/limiter/limiter.ts';
import type { PlanTable } from '../../../gateway/limiter/plans.ts';
import { PlanCache } from '../../../gateway/stores/plan-cache.ts';
import { Plans } from '../../../gateway/stores/plans.ts';
import { redisBackend } from '../../../gateway/stores/redis/backend.ts';
import { connectRedis } from '../../../gateway/stores/redis/connection.ts';
import { bearerToken } from '../../../shared/http/request-head.ts';
import { createLogger } from '../../../shared/process/logger.ts';
import { limitHeaders } from '../../support/limit-headers.ts';
import { targetOf } from '../../support/redis-target.ts';

/** The gateway's own decision and headers, with http-proxy-3 as the forwarder. It writes no log. */

const { CORE_URL = '', REDIS_URL = '' } = process.env;

const logger = createLogger('http-proxy-3', 'warn');
const redis = await connectRedis(targetOf('single', REDIS_URL, { timeoutMs: 1_000 }), logger);
const inForce: { table: PlanTable | undefined } = { table: undefined };
const backend = redisBackend(redis, inForce, logger);
const planCache = new PlanCache(new Plans(backend.storage), logger, inForce);
await planCache.start();
// Node's default agent would close idle connections beyond 256.
const agent = new http.Agent({ keepAlive: true, maxFreeSockets: 1_024 });
const proxy = createProxyServer({ target: CORE_URL, agent });
proxy.on('error', (_fault, _request, response) => void response.destroy());

const server = http.createServer(async (request, response) => {
  const token = bearerToken(request.headers.authorization);
  const credential = token === undefined ? undefined : parseApiKey(token);
  const verdict = credential === undefined ? undefined : await backend.limiter.decide(credential);
  if (verdict === undefined || verdict.outcome === 'unauthorized' || verdict.outcome === 'undecided') {
    answer(response, 401, 'unauthorized');
    return;
  }
  setLimits(response, verdict);
  if (verdict.outcome === 'admitted') {
    delete request.headers.authorization;
    request.headers['x-caller-id'] = credential?.id;
    proxy.web(request, response);
  } else answer(response, 429, verdict.outcome === 'banned' ? 'key_banned' : 'rate_limit_exceeded');
});

function setLimits(response: http.ServerResponse, decision: Decision): void {
  const headers = limitHeaders(decision, true);
  for (let at = 0; at < headers.length; at += 2) response.setHeader(headers[at] as string, headers[at + 1] as string);
}

function answer(response: http.ServerResponse, status: number, code: string): void {
  const body = JSON.stringify({ code, message: code, status });
  response.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': body.length });
  response.end(body);
}

server.listen(0, '127.0.0.1', () => {
  process.send?.({ 'http-proxy-3': `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
});
