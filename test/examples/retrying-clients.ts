import { execFile, execFileSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import axios, { type AxiosInstance } from 'axios';
import axiosRetry from 'axios-retry';
import got from 'got';
import ky from 'ky';
import { attach } from 'retry-axios';
import { Agent, RetryAgent, request } from 'undici';
import { patientFetch } from './patient-fetch.ts';

/** Popular HTTP clients with retries enabled: each waits for Retry-After by itself. */

/**
 * A worker that sends one request after another until `end`, by performance.now().
 * @returns the final status of each
 */
export type Work = (url: string, key: string, end: number) => Promise<number[]>;

/** So many that no client gives up: one that starts again would not wait for Retry-After. */
const TRIES = 1_000;
const run = promisify(execFile);
const bearer = (key: string) => ({ Authorization: `Bearer ${key}` });

/** A worker that makes one call per request. */
function oneByOne(send: (url: string, key: string) => Promise<number>): Work {
  return async (url, key, end) => {
    const statuses: number[] = [];
    while (performance.now() < end) statuses.push(await send(url, key));
    return statuses;
  };
}

function axiosWith(prepare: (instance: AxiosInstance) => unknown): Work {
  const instance = axios.create();
  prepare(instance);
  return oneByOne(async (url, key) => (await instance.get(url, { headers: bearer(key) })).status);
}

const retrying = new RetryAgent(new Agent(), { maxRetries: TRIES, maxTimeout: 60_000 });

const URLLIB3 = `
import sys, time
from pip._vendor import urllib3
url, key, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
again = urllib3.Retry(total=${TRIES}, status_forcelist=[429], raise_on_status=False)
pool, end = urllib3.PoolManager(retries=again), time.monotonic() + seconds
while time.monotonic() < end:
    print(pool.request('GET', url, headers={'Authorization': 'Bearer ' + key}).status)
`;

const hasUrllib3 = (): boolean => {
  try {
    execFileSync('python3', ['-c', 'import pip._vendor.urllib3'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
};

export const RETRYING_CLIENTS: Readonly<Record<string, Work>> = {
  patientFetch: oneByOne(async (url, key) => {
    for (;;) {
      const answer = await patientFetch(url, { headers: bearer(key) });
      await answer.arrayBuffer();
      if (answer.status !== 429) return answer.status;
      await sleep(Number(answer.headers.get('retry-after')) * 1_000);
    }
  }),
  got: oneByOne(async (url, key) => (await got(url, { headers: bearer(key), retry: { limit: TRIES } })).statusCode),
  ky: oneByOne(async (url, key) => {
    const answer = await ky(url, { headers: bearer(key), retry: TRIES, timeout: false });
    await answer.arrayBuffer();
    return answer.status;
  }),
  'axios-retry': axiosWith((instance) =>
    axiosRetry(instance, { retries: TRIES, retryCondition: ({ response }) => response?.status === 429 }),
  ),
  'retry-axios': axiosWith((instance) => {
    instance.defaults.raxConfig = { retry: TRIES, statusCodesToRetry: [[429, 429]] };
    attach(instance);
  }),
  "undici's RetryAgent": oneByOne(async (url, key) => {
    const { statusCode, body } = await request(url, { headers: bearer(key), dispatcher: retrying });
    await body.dump();
    return statusCode;
  }),
  'curl --retry': oneByOne(async (url, key) => {
    const options = ['-s', '-w', '%{http_code}', '--retry', String(TRIES), '-H', `Authorization: Bearer ${key}`];
    // curl also writes the status codes of failed attempts.
    return Number((await run('curl', [...options, url])).stdout.slice(-3));
  }),
  ...(hasUrllib3() && {
    urllib3: async (url: string, key: string, end: number) => {
      const seconds = String((end - performance.now()) / 1_000);
      const { stdout } = await run('python3', ['-c', URLLIB3, url, key, seconds]);
      return stdout.trim().split('\n').map(Number);
    },
  }),
};
