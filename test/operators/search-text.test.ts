import { expect, test } from 'vitest';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import { searchText } from '../../gateway/operators/clients.ts';

/** What the command line and the console look for, from what somebody pasted. */

const { apiKey, credential } = createApiKey();
const secret = apiKey.slice('as_'.length + credential.id.length + 1);

test.for([
  ['a whole key', apiKey],
  ['a key with spaces around it', ` ${apiKey}\n`],
  ['a header', `Authorization: Bearer ${apiKey}`],
  ['a curl line', `curl -H 'Authorization: Bearer ${apiKey}' http://127.0.0.1:8080/v1/pets`],
  ['a key that was cut off', apiKey.slice(0, 30)],
  ['a key with more behind it', `${apiKey}abc`],
] as const)('only the id of %s is kept', ([, pasted]) => {
  expect(searchText(pasted)).toEqual({ text: credential.id, hadSecret: true });
});

test('a shortened key from a log has no secret', () => {
  expect(searchText(`as_${credential.id}_…`)).toEqual({ text: credential.id, hadSecret: false });
  expect(searchText(`{"level":30,"requestId":"r-1","keyId":"${credential.id}","plan":"pro"}`)).toEqual({
    text: credential.id,
    hadSecret: false,
  });
});

test('a secret without its prefix is not searched for', () => {
  expect(searchText(secret)).toEqual({ text: '', hadSecret: true });
  expect(searchText(`my key: ${secret}`)).toEqual({ text: '', hadSecret: true });
});

test.for([
  'acme',
  'as_a name',
  credential.id,
  '1d9d2e71-70ef-42a0-853b-af79a5ee6eab',
  '北京 动物园',
  '0af7651916cd43dd8448eb211c80319c',
])('the search text %s is unchanged', (text) => {
  expect(searchText(` ${text} `)).toEqual({ text, hadSecret: false });
});
