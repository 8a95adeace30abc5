/** Shows how to call each operation in three languages. The key comes from the environment, so no sample shows one. */

/**
 * The extension that our page shows, as Redoc and Scalar do:
 * https://redocly.com/docs/realm/author/reference/openapi-extensions/x-code-samples.
 */
export interface CodeSample {
  readonly lang: string;
  readonly label: string;
  readonly source: string;
}

/** The address of a gateway of `npm start`. The page replaces it with its own origin. */
export const SAMPLE_ORIGIN = 'http://127.0.0.1:8080';

/**
 * @param path contains example values in place of parameters
 * @param example the body; undefined if there is none
 */
export function samplesOf(method: string, path: string, example: unknown): CodeSample[] {
  const call = { method, url: SAMPLE_ORIGIN + path, body: example === undefined ? undefined : JSON.stringify(example) };
  return [
    { lang: 'Shell', label: 'curl', source: curl(call) },
    { lang: 'JavaScript', label: 'fetch', source: javaScript(call) },
    { lang: 'Python', label: 'Python', source: python(call) },
  ];
}

interface SampleCall {
  readonly method: string;
  readonly url: string;
  readonly body: string | undefined;
}

const curl = ({ url, body }: SampleCall): string =>
  [
    `curl -i '${url}'`,
    '-H "Authorization: Bearer $KEY"',
    ...(body === undefined ? [] : ["-H 'Content-Type: application/json'", `-d '${body}'`]),
  ].join(' \\\n  ');

const javaScript = ({ method, url, body }: SampleCall): string =>
  [
    `const response = await fetch('${url}', {`,
    ...(method === 'GET' ? [] : [`  method: '${method}',`]),
    body === undefined
      ? "  headers: { Authorization: 'Bearer ' + process.env.KEY },"
      : "  headers: { Authorization: 'Bearer ' + process.env.KEY, 'Content-Type': 'application/json' },",
    ...(body === undefined ? [] : [`  body: '${body}',`]),
    '});',
    'console.log(response.status, await response.text());',
  ].join('\n');

const python = ({ method, url, body }: SampleCall): string =>
  [
    'import os, urllib.request',
    '',
    'request = urllib.request.Request(',
    `    "${url}",`,
    ...(method === 'GET' ? [] : [`    method="${method}",`]),
    ...(body === undefined ? [] : [`    data=b'${body}',`]),
    body === undefined
      ? '    headers={"Authorization": "Bearer " + os.environ["KEY"]},'
      : '    headers={"Authorization": "Bearer " + os.environ["KEY"], "Content-Type": "application/json"},',
    ')',
    'with urllib.request.urlopen(request) as response:',
    '    print(response.status, response.read().decode())',
  ].join('\n');
