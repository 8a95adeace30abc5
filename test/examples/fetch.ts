import { patientFetch } from './patient-fetch.ts';

/** Lists the first 20 available pets with fetch. */

const { STORE_URL, API_KEY } = process.env;

const response = await patientFetch(`${STORE_URL}/v1/pets?status=available`, {
  headers: { authorization: `Bearer ${API_KEY}` },
});
if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
process.stdout.write(`${await response.text()}\n`);
