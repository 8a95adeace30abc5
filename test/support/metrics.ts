import { expect } from 'vitest';
import { send } from './http.ts';
import { type Sample, Scrape } from './scrape.ts';

export { type Sample, Scrape };

/** @param url of the operators' listener, or of a core */
export const scrape = async (url: string): Promise<Scrape> => new Scrape((await send(`${url}/metrics`)).text);

/** Waits until a service's metrics are so: an answer is counted in the moment after it was sent. */
export const eventuallyScraped = (url: string, read: (metrics: Scrape) => unknown) =>
  expect.poll(async () => read(await scrape(url)), { timeout: 10_000 });
