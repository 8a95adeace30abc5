import { expect } from 'vitest';
import { send } from './http.ts';
import { Scrape } from './scrape.ts';

export { Scrape };

/** @param url the URL of an operators' listener or of a core */
export const scrape = async (url: string): Promise<Scrape> => new Scrape((await send(`${url}/metrics`)).text);

/** Polls a service's metrics, because an answer is counted shortly after it was sent. */
export const eventuallyScraped = (url: string, read: (metrics: Scrape) => unknown) =>
  expect.poll(async () => read(await scrape(url)));
