import { Agent, interceptors, request } from 'undici';

/** Lists the first 20 available pets with undici, whose retry interceptor respects Retry-After. */

const { STORE_URL, API_KEY } = process.env;

// Without maxTimeout, it would wait at most 30 s, which is shorter than a ban.
const patient = new Agent().compose(
  interceptors.retry({ statusCodes: [429, 503], maxRetries: 5, maxTimeout: 86_400_000 }),
);

const { statusCode, body } = await request(`${STORE_URL}/v1/pets?status=available`, {
  dispatcher: patient,
  headers: { authorization: `Bearer ${API_KEY}` },
});
const text = await body.text();
if (statusCode !== 200) throw new Error(`${statusCode}: ${text}`);
process.stdout.write(`${text}\n`);
await patient.close();
