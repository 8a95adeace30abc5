import { Agent, interceptors, request } from 'undici';

/** Lists the available pets with undici, whose retry interceptor respects Retry-After. */

const { STORE_URL, API_KEY } = process.env;

// Without maxTimeout, it would wait at most 30 s, which is shorter than a ban.
const patient = new Agent().compose(
  interceptors.retry({ statusCodes: [429, 503], maxRetries: 5, maxTimeout: 86_400_000 }),
);

const { body } = await request(`${STORE_URL}/v1/pets?status=available`, {
  dispatcher: patient,
  headers: { authorization: `Bearer ${API_KEY}` },
});
process.stdout.write(`${await body.text()}\n`);
await patient.close();
