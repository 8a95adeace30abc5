import { expect, test } from 'vitest';
import { createApiKey, holdsApiKey, redactApiKeys } from '../../gateway/limiter/credential.ts';
import { redactSecrets } from '../../gateway/operators/tokens.ts';
import { idOf } from '../support/api-key.ts';
import { send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

/** An API key in a URL is refused and recorded without its secret, even if it is percent-encoded. */

const escaped = (text: string): string =>
  text.replaceAll(/./gs, (char) => `%${char.charCodeAt(0).toString(16).padStart(2, '0')}`);

/** The ways in which clients and proxies may spell a key. */
const spellingsOf = (key: string): string[] => [
  key.replace('_', '%5F'),
  key.replaceAll('_', '%5f'),
  `${key.slice(0, 20)}${escaped(key.charAt(20))}${key.slice(21)}`,
  escaped(key),
  escaped(escaped(key)),
  escaped(escaped(escaped(escaped(key)))),
  key.replace('_', `%${'25'.repeat(100)}5F`),
  key.replace('_', '%%35%46'),
  // An escape contains the first letter of the key.
  `%5${key}`,
  `%5${key.replace('_', '%5F')}`,
  `100%25${key}`,
  `%C3%A4${key}`,
];

test('an encoded key in a URL is refused, and operators and logs see only its id', async () => {
  const stack = await startStack();
  const key = await stack.issueKey();
  for (const spelling of spellingsOf(key).filter((one) => !one.includes('%%')))
    for (const path of [`/v1/pets/${spelling}`, `/v1/pets?key=${spelling}`, `/v1/limits?key=${spelling}`]) {
      const answer = await send(`${stack.gateway}${path}`, { key });
      expect([path, answer.status, answer.text]).toEqual([path, 400, expect.stringContaining('never in the URL')]);
    }
  await send(`${stack.adminUrl}/keys/${escaped(key)}`);
  const secret = key.slice(-38);
  await expect.poll(async () => (await stack.admin('GET', '/requests')).text).toContain(`_${idOf(key)}_…`);
  const seen = JSON.stringify(stack.log) + (await stack.admin('GET', '/requests?limit=200')).text;
  const escapes = /%([0-7][0-9a-f])/gi;
  for (let text = seen; ; text = text.replaceAll(escapes, (_, hex) => String.fromCharCode(Number(`0x${hex}`)))) {
    // Neither half of the secret is visible.
    for (const part of [secret.slice(0, 19), secret.slice(19)]) expect(text).not.toContain(part);
    if (text.search(escapes) === -1) break;
  }
});

test('a key is found in any encoding, and any other text is left unchanged', () => {
  const { apiKey } = createApiKey();
  const [id, secret] = [idOf(apiKey), apiKey.slice(-38)];
  for (const spelling of spellingsOf(apiKey)) {
    expect([spelling, holdsApiKey(spelling)]).toEqual([spelling, true]);
    expect(redactApiKeys(spelling)).toMatch(new RegExp(`^.{0,7}s_${id}_…$`));
  }
  // The rest of a broken key is hidden too.
  expect(redactApiKeys(`/a/as%5F${id}_${secret.slice(0, 3)}%2D${secret.slice(3)}`)).toBe(`/a/as_${id}_…`);
  for (const other of ['/v1/pets/%C3%A4%5F%41', `/as%5F${id}`, '100%', '%25', '%', '%5', '%0A_%', `%00as%5F${id}_`]) {
    expect(redactApiKeys(other)).toBe(other);
    expect(holdsApiKey(other)).toBe(false);
  }
  const token = `op_00000000_${'a'.repeat(43)}`;
  expect(redactSecrets(`/keys/${token.replaceAll('_', '%5F')}`)).toBe('/keys/op_00000000_…');
});

test('redaction takes time proportional to the length of encoded text', () => {
  for (const text of ['%25'.repeat(8_000), `${'%3'.repeat(8_000)}5`, `${'%'.repeat(8_000)}${'35'.repeat(8_000)}`]) {
    const startedAt = performance.now();
    redactApiKeys(text);
    expect(performance.now() - startedAt).toBeLessThan(100);
  }
});
