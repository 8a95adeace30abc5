import { type Answer, post, send } from '../../support/http.ts';
import type { Contender } from '../contenders.ts';
import { LIST, NEW_PET } from '../load/asks.ts';
import { type Stage, scriptCalls } from './stage.ts';

/** Verifies a contender before any measurement. A contender that fails is not compared. */

/** The minute limit of the key `few`, and the number of further requests that are tried. */
const ALLOWED = 3;
const TOO_MANY = 2;

export async function verify(contender: Contender, stage: Stage): Promise<void> {
  const { url, keys, redisCalls } = contender;
  const fault = (what: string) => new Error(`${contender.name} cannot be compared: ${what}.`);

  const { text: expected } = await send(stage.coreUrl + LIST);
  const list = await send(url + LIST, { key: keys.hot });
  if (list.status !== 200) throw fault(`GET returns ${list.status}`);
  if (list.text !== expected) throw fault(`the body of GET differs from that of the core: ${list.text.slice(0, 200)}`);
  const created = await post(url + LIST, NEW_PET, { key: keys.hot });
  if (created.status !== 201) throw fault(`POST returns ${created.status}`);
  if (redisCalls === undefined) return;

  if (!hasLimitHeaders(list) || !hasLimitHeaders(created)) throw fault('X-RateLimit headers are missing');
  const anonymous = await send(url + LIST);
  if (anonymous.status !== 401) throw fault(`GET without a key returns ${anonymous.status}`);

  const before = await scriptCalls(stage.client);
  const answers = [];
  for (let request = 0; request < ALLOWED + TOO_MANY; request++)
    answers.push(await send(url + LIST, { key: keys.few }));
  const calls = (await scriptCalls(stage.client)) - before;
  const admitted = answers.filter(({ status }) => status === 200).length;
  const refused = answers.filter(({ status }) => status === 429).length;
  if (admitted !== ALLOWED || refused !== TOO_MANY) throw fault(`it admits ${admitted} and refuses ${refused}`);
  if (answers.at(-1)?.headers['retry-after'] === undefined) throw fault('a 429 has no Retry-After');
  if (calls < Math.min(redisCalls, 1) * answers.length || calls > redisCalls * answers.length)
    throw fault(`it called Redis ${calls} times for ${answers.length} decisions`);
}

function hasLimitHeaders({ headers }: Answer): boolean {
  return ['limit', 'remaining', 'reset'].every((name) => /^\d+$/.test(String(headers[`x-ratelimit-${name}`])));
}
