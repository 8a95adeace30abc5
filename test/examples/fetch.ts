import { patientFetch } from './patient-fetch.ts';

/** Lists the available pets with fetch. */

const { STORE_URL, API_KEY } = process.env;

const response = await patientFetch(`${STORE_URL}/v1/pets?status=available`, {
  headers: { authorization: `Bearer ${API_KEY}` },
});
if (!response.ok) throw new Error(`${response.status}: ${((await response.json()) as { message: string }).message}`);
process.stdout.write(`${await response.text()}\n`);
