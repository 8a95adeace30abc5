import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { goodAnswer, misbehavingStack, type Outcome } from '../support/misbehaving-core.ts';

/**
 * Tests a core that dies at any byte of a response. The response is either alone on its connection or between others.
 */

/** The longest id, for the longest response. A cut beyond the start of a shorter response is made at its first byte. */
const ID = 'an id has 36 characters, as this has.9999999999999999';

const deaths = ['content-length', 'chunked'].flatMap((framing) =>
  ['closes', 'resets'].map((fault) => ({ framing, fault })),
);

test.for(deaths)(
  'a request gets 502 if its core $fault the connection at any byte of a response with $framing',
  async ({ framing, fault }) => {
    const { ask } = await misbehavingStack({});
    const { length } = goodAnswer(ID, framing === 'chunked');
    // Positions count from the end, because attempt ids differ in length.
    for (let at = -length; at < 0; at++) {
      const query = `fault=${fault}&at=${at}&framing=${framing}`;
      const healed = await ask('GET', `${query}&times=1`);
      const read = await ask('GET', query);
      const write = await ask('POST', query);
      expect(healed, `healed, ${at}`).toMatchObject({ seen: 200, isOwn: true, asked: [0, 0] });
      expect(read, `GET, ${at}`).toMatchObject({ seen: 502, asked: [0, 0] });
      expect(write, `POST, ${at}`).toMatchObject({ seen: 502, asked: [0] });
    }
    const whole = await ask('POST', `fault=closes&at=${length}&framing=${framing}`);
    expect(whole).toMatchObject({ seen: 200, isOwn: true });
  },
);

const FAULTS = ['closes&at=0', 'closes&at=80', 'resets&at=20', 'garbage', 'both-framings', 'too-long', 'late&at=20'];
const ANY: readonly Outcome['seen'][] = [200, 502];

test('requests get their own responses while other requests fail and clients disconnect', async () => {
  const { ask, stack } = await misbehavingStack({ LOG_LEVEL: 'silent' });
  const outcomes: { query: string; outcome: Outcome }[] = [];
  const client = async (number: number) => {
    for (let sent = 0; sent < 30; sent++) {
      const at = number + sent;
      const query = at % 3 === 0 ? `fault=${FAULTS[Math.floor(at / 3) % FAULTS.length]}` : '';
      outcomes.push({ query, outcome: await ask(at % 5 === 0 ? 'POST' : 'GET', query) });
    }
  };
  let isOver = false;
  const leaving = async () => {
    while (!isOver) {
      const request = http.get(`${stack.gateway}/v1/pets?fault=late&at=15`, {
        agent: false,
        headers: { authorization: `Bearer ${await stack.issueKey()}` },
      });
      request.on('error', () => {});
      await sleep(8);
      request.destroy();
    }
  };
  const left = leaving();
  await Promise.all(Array.from({ length: 24 }, (_, number) => client(number)));
  isOver = true;
  await left;

  const good = outcomes.filter(({ query }) => query === '');
  expect(good.filter(({ outcome }) => outcome.seen !== 200 || !outcome.isOwn)).toEqual([]);
  const bad = outcomes.filter(({ query }) => query !== '');
  expect(bad.filter(({ outcome }) => !ANY.includes(outcome.seen) || (outcome.seen === 200 && !outcome.isOwn))).toEqual(
    [],
  );
  expect(new Set(bad.map(({ outcome }) => outcome.seen)).size).toBeGreaterThan(1);
});
