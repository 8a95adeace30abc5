/** Uses fetch to print the plan, the limits and the remaining requests for a key. The request costs no token. */

const { STORE_URL, API_KEY } = process.env;

interface Limit {
  readonly limit: number;
  readonly remaining: number;
}

const response = await fetch(`${STORE_URL}/v1/limits`, { headers: { authorization: `Bearer ${API_KEY}` } });
if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
const { plan, minute, day } = (await response.json()) as { plan: string; minute: Limit; day: Limit };
process.stdout.write(
  `${plan}: ${minute.remaining} of ${minute.limit} a minute, ${day.remaining} of ${day.limit} a day\n`,
);
