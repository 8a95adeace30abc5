/** A request of a load. A POST carries NEW_PET. */
export interface Ask {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly key: string;
}

export const LIST = '/v1/pets';
export const NEW_PET = '{"name":"Rex","categoryId":1234,"status":"available"}';

/** One list request per key. */
export const listsOf = (keys: readonly string[]): Ask[] => keys.map((key) => ({ method: 'GET', path: LIST, key }));

/** One line per request, in the format of wrk.lua. */
export const inLines = (asks: readonly Ask[]): string =>
  asks.map(({ method, path, key }) => `${method} ${path} ${key}`).join('\n');
