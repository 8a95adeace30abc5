import { describe, expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { send } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { bothStacks, startStack } from '../support/stack.ts';

const { url } = await emptyDatabase();

interface Secret {
  readonly id: string;
  readonly expiresAt?: string;
}

describe.for(bothStacks(url))('with %s', async ([, environment]) => {
  const stack = await startStack(environment);
  const statusOf = async (key: string) => (await send(`${stack.gateway}/v1/pets`, { key })).status;

  const rotate = (key: string, body: unknown) => stack.admin('POST', `/keys/${idOf(key)}/rotate`, body);
  const whole = ({ json }: { json: unknown }) => (json as { key: string }).key;
  const statuses = (...keys: string[]) => Promise.all(keys.map(statusOf));

  test('a repeated rotation revokes no secret at once and leaves the secret in use its grace period', async () => {
    const old = await stack.issueKey();
    const second = whole(await rotate(old, { graceSeconds: 60 }));
    const third = whole(await rotate(old, { graceSeconds: 60 }));
    expect(await statuses(old, second, third)).toEqual([200, 200, 200]);
    const last = await rotate(old, { graceSeconds: 0 });
    expect(await statuses(old, second, third, whole(last))).toEqual([200, 200, 401, 200]);
  });

  test('a repeated rotation gives the new secret its own expiry, not the one set by the first rotation', async () => {
    const key = await stack.issueKey();
    const secretsOf = ({ json }: { json: unknown }) => (json as { secrets: Secret[] }).secrets;
    const ofKey = `/keys/${idOf(key)}`;
    const [first = { id: '' }] = secretsOf(await stack.admin('GET', ofKey));
    const repeated = async () => {
      for (let time = 1; time < 3; time++) await rotate(key, { graceSeconds: 60, secretId: first.id });
      return secretsOf(await rotate(key, { graceSeconds: 60, secretId: first.id }));
    };
    for (const expiresAt of [undefined, '2250-12-01T00:00:00.000Z', '2251-12-01T00:00:00.000Z']) {
      if (expiresAt !== undefined) await stack.admin('PATCH', `${ofKey}/secrets/${first.id}`, { expiresAt });
      const [replaced, ...others] = await repeated();
      expect(Date.parse(replaced?.expiresAt ?? '') - Date.now()).toBeLessThan(60_000);
      expect(others.slice(-3).map((secret) => secret.expiresAt)).toEqual([expiresAt, expiresAt, expiresAt]);
    }
  });

  test('if several secrets have no expiry, the one to replace must be named, and no other expires', async () => {
    const first = await stack.issueKey();
    const added = await stack.admin('POST', `/keys/${idOf(first)}/secrets`, { name: 'billing', scope: ['read'] });
    const { id, key: billing } = added.json as { id: string; key: string };
    const refused = await rotate(first, { graceSeconds: 60 });
    expect([refused.status, (refused.json as { message: string }).message]).toEqual([
      409,
      expect.stringMatching(
        /^This key has several secrets\. Choose the one to replace with secretId: \w+ \(first\), \w+ \(billing\)\.$/,
      ),
    ]);
    const rotated = await rotate(first, { graceSeconds: 0, secretId: id });
    expect(rotated.json).toMatchObject({ secrets: [{ name: 'first' }, { name: 'billing', scope: ['read'] }] });
    expect(await statuses(first, billing, whole(rotated))).toEqual([200, 401, 200]);
    expect((await rotate(first, { graceSeconds: 60, secretId: id })).status).toBe(404);
    expect((await rotate(first, { graceSeconds: 60, ends: 'old' })).status).toBe(400);
  });
});
