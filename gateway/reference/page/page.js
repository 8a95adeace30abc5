/** Shows the limits of a customer's own key, and sends requests from the page. The key is kept only in a variable. */

const SAMPLE_ORIGIN = 'http://127.0.0.1:8080';
const REFRESH_MS = 5_000;
const SLOWEST_MS = 60_000;
/** The gateway looks up the refusals of a key once a second. */
const REFUSALS_AGAIN_MS = 1_200;
const COPIED_MS = 2_000;

const byId = (id) => document.getElementById(id);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const number = (value) => value.toLocaleString('en-US');

/** Formats a time, with its date unless that is today. */
function clock(unixSeconds) {
  const at = new Date(unixSeconds * 1_000);
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday
    ? at.toLocaleTimeString('en-GB')
    : at.toLocaleString('en-GB', { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' });
}

const counted = (count, one) => `${number(count)} ${one}${count === 1 ? '' : 's'}`;

/** Formats a duration such as `20 seconds`, `57 min 29 s` or `7 h 47 min`. */
function lengthOf(seconds) {
  if (seconds < 120) return counted(seconds, 'second');
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) return `${minutes} min ${seconds % 60} s`;
  const whole = Math.ceil(seconds / 60);
  return `${Math.floor(whole / 60)} h ${whole % 60} min`;
}

function element(name, text, attributes = {}) {
  const made = document.createElementNS(
    name === 'rect' ? 'http://www.w3.org/2000/svg' : document.documentElement.namespaceURI,
    name,
  );
  made.textContent = text;
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  return made;
}

let key;

/* The samples show the address of this gateway, and the key. */

const samples = all('pre code').map((place) => ({
  place,
  source: place.textContent.replaceAll(SAMPLE_ORIGIN, location.origin),
}));

const withKey = (source) =>
  key === undefined
    ? source
    : source
        .replace('$KEY', key)
        .replace("Bearer ' + process.env.KEY", `Bearer ${key}'`)
        .replace('Bearer " + os.environ["KEY"]', `Bearer ${key}"`)
        .replace('import os, urllib.request', 'import urllib.request');

function showSamples() {
  for (const { place, source } of samples) if (place.isConnected) place.textContent = withKey(source);
  byId('read-key').hidden = key !== undefined;
  byId('in-history').hidden = key === undefined;
}

function chooseLanguage(language) {
  for (const button of all('button[data-language]'))
    button.setAttribute('aria-pressed', String(button.dataset.language === language));
  for (const sample of all('pre[data-language]')) sample.hidden = sample.dataset.language !== language;
}

async function copy(button) {
  const text = all('pre:not([hidden]) code', button.closest('.head').parentElement)[0];
  try {
    await navigator.clipboard.writeText(text.textContent);
    button.textContent = 'Copied';
  } catch {
    // Without TLS, browsers do not let scripts write to the clipboard.
    getSelection().selectAllChildren(text);
    button.textContent = 'Selected: press Ctrl+C';
  }
  setTimeout(() => {
    button.textContent = 'Copy';
  }, COPIED_MS);
}

document.addEventListener('click', ({ target }) => {
  const button = target.closest('button');
  if (button?.dataset.language !== undefined) chooseLanguage(button.dataset.language);
  if (button?.classList.contains('copy')) void copy(button);
});

/* The limits are refreshed while the page is visible. After failed attempts, they are refreshed less often. */

let timer;
let waitMs = REFRESH_MS;
/** How many responses in a row had no refusals because they could not be read. */
let unread = 0;
/** The request in progress. If the key is changed or forgotten before the response arrives, the response is dropped. */
let asking;

function say(text, isBad = false) {
  byId('key-state').textContent = text;
  byId('key-state').className = isBad ? 'bad' : '';
}

async function refresh() {
  clearTimeout(timer);
  if (key === undefined || document.hidden || asking !== undefined) return;
  const asked = new AbortController();
  asking = asked;
  let next;
  try {
    const response = await fetch('/v1/limits?refusals=true', {
      headers: { authorization: `Bearer ${key}` },
      signal: asked.signal,
      cache: 'no-store',
    });
    const body = await response.json();
    if (asking === asked) next = response.ok ? showLimits(body) : showFault(response, body);
  } catch {
    if (asking === asked) next = later('The gateway does not answer');
  }
  if (asking !== asked) return;
  asking = undefined;
  timer = setTimeout(refresh, next);
}

/** @returns the time until the next refresh */
function showLimits({ name, plan, minute, day, waitSeconds, strikesLeft, bannedUntil, expiresAt, usage, refusals }) {
  waitMs = REFRESH_MS;
  byId('key-report').hidden = false;
  const until = expiresAt === null ? '' : ` It expires on ${new Date(expiresAt).toLocaleString('en-GB')}.`;
  if (bannedUntil === null) say(`${name}, plan ${plan[0].toUpperCase()}${plan.slice(1)}.${until}`);
  else say(`${name} is banned until ${clock(bannedUntil)}. Stop sending until then.`, true);
  for (const [id, { limit, remaining, reset }] of Object.entries({ minute, day })) {
    const isFull = remaining === limit;
    Object.assign(byId(id), { max: limit, low: limit / 5, optimum: limit, value: remaining });
    byId(`${id}-left`).textContent = `${number(remaining)} of ${number(limit)} left`;
    byId(`${id}-full`).textContent = isFull ? 'Full' : `Full again at ${clock(reset)}`;
  }
  byId('wait').textContent = waitSeconds === 0 ? 'None' : lengthOf(waitSeconds);
  byId('wait-note').textContent = waitSeconds === 0 ? 'A request is admitted now' : 'Until a request is admitted';
  byId('strikes').textContent = number(strikesLeft);
  byId('strikes-note').textContent = bannedUntil === null ? 'Not banned' : `Banned until ${clock(bannedUntil)}`;
  showUsage(usage);
  unread = refusals === null ? unread + 1 : 0;
  showRefusals(refusals, bannedUntil ?? (waitSeconds === 0 ? Number.POSITIVE_INFINITY : 0));
  return unread === 1 ? REFUSALS_AGAIN_MS : REFRESH_MS;
}

/**
 * A rejected key may be enabled or extended later, so the page tries again, but rarely: each attempt with a wrong key
 * counts against the address.
 * @returns the time until the next refresh
 */
function showFault({ status, headers }, { message }) {
  if (status !== 401) return later(message, 1_000 * Number(headers.get('retry-after') ?? 0));
  byId('key-report').hidden = true;
  say(
    'The gateway does not accept this key: it is mistyped, revoked, disabled, expired or bound to other networks. This page tries again every minute.',
    true,
  );
  return SLOWEST_MS;
}

function later(why, atLeastMs = 0) {
  waitMs = Math.min(2 * waitMs, SLOWEST_MS);
  const next = Math.max(waitMs, atLeastMs);
  say(
    `Not up to date: ${why.replace(/\.$/, '')}. Next attempt in ${counted(Math.ceil(next / 1_000), 'second')}.`,
    true,
  );
  return next;
}

const [BARS_WIDTH, BARS_HEIGHT] = [440, 120];

function showUsage(usage) {
  byId('usage').tBodies[0].replaceChildren(
    ...usage.toReversed().map(({ day, admitted, refused }) => {
      const row = element('tr', '');
      row.append(element('th', day, { scope: 'row' }), element('td', number(admitted)), element('td', number(refused)));
      return row;
    }),
  );
  const most = Math.max(1, ...usage.map(({ admitted, refused }) => admitted + refused));
  const last = Math.floor(Date.now() / 86_400_000);
  const width = BARS_WIDTH / 36;
  const barsOf = ({ day, admitted, refused }) => {
    const x = BARS_WIDTH - (last - Date.parse(day) / 86_400_000 + 1) * width;
    const bar = (kind, from, count) =>
      element('rect', '', {
        class: kind,
        x,
        width: width - 2,
        y: BARS_HEIGHT * (1 - (from + count) / most),
        height: (BARS_HEIGHT * count) / most,
      });
    return [bar('admitted', 0, admitted), bar('refused', admitted, refused)];
  };
  byId('usage-bars').replaceChildren(...usage.flatMap(barsOf));
  const total = (of) => usage.reduce((sum, one) => sum + one[of], 0);
  const words = `The last 36 days: ${counted(total('admitted'), 'request')} admitted, ${number(total('refused'))} refused by a limit. Refusals during a ban are not counted.`;
  byId('usage-bars').setAttribute('aria-label', words);
  byId('usage-words').textContent = words;
}

const NONE = byId('no-refusals').textContent;

/**
 * @param refusals null if they could not be read, in which case the last ones stay. The page says so only if another
 *   attempt also fails, because the one before may have been less than a second ago
 * @param notBefore when the ban ends, as Unix time in seconds; infinite if a request is admitted now
 */
function showRefusals(refusals, notBefore) {
  if (unread === 1) return;
  byId('no-refusals').textContent = unread > 1 ? 'They cannot be read right now. This page will try again.' : NONE;
  byId('no-refusals').hidden = refusals?.length > 0;
  if (refusals === null) return;
  byId('refusals').replaceChildren(
    ...refusals.map((refusal) => {
      const entry = element('li', `${clock(refusal.at)} `);
      const link = element('a', 'What to do', { href: `#error-${refusal.code}` });
      entry.append(element('code', `${refusal.method} ${refusal.path}`), ` ${whyOf(refusal, notBefore)} `, link);
      return entry;
    }),
  );
}

function whyOf({ code, limit, retryAt, repeated }, notBefore) {
  const more = repeated === 0 ? '' : ` ${number(repeated)} more were refused in the same minute.`;
  if (code === 'insufficient_scope') return `It was refused: the secret lacks the scope.${more}`;
  const why = code === 'key_banned' ? 'the key was banned' : `the ${limit} limit was used up`;
  const retry =
    retryAt * 1_000 > Date.now() && retryAt >= notBefore ? ` A retry will be admitted from ${clock(retryAt)}.` : '';
  return `It was refused: ${why}.${retry}${more}`;
}

document.addEventListener('visibilitychange', refresh);

function useKey(given) {
  key = given;
  asking?.abort();
  asking = undefined;
  waitMs = REFRESH_MS;
  byId('key').value = '';
  byId('forget').hidden = key === undefined;
  byId('key-report').hidden = true;
  byId('refusals').replaceChildren();
  byId('no-refusals').hidden = true;
  unread = 0;
  showSamples();
  say(key === undefined ? '' : 'Loading …');
  void refresh();
}

const KEY = /^as_[0-9A-Za-z]+_[0-9A-Za-z]+$/;

function takeKey() {
  const given = byId('key')
    .value.trim()
    .replace(/^bearer +/i, '');
  if (given === '') return;
  useKey(KEY.test(given) ? given : undefined);
  if (key === undefined) say('This is not an API key. Keys look like as_…_…', true);
}

byId('key-form').addEventListener('submit', (event) => {
  event.preventDefault();
  takeKey();
});
byId('forget').addEventListener('click', () => useKey(undefined));

/** @returns the request that the fields of an operation describe */
function requestOf(operation) {
  const { method, path } = operation.dataset;
  const filled = all('[data-in]', operation).filter(({ value }) => value !== '');
  const of = (place) => filled.filter(({ dataset }) => dataset.in === place).map(({ name, value }) => [name, value]);
  const query = new URLSearchParams(of('query')).toString();
  const target = of('path').reduce((text, [name, value]) => text.replace(`{${name}}`, encodeURIComponent(value)), path);
  const body = operation.querySelector('textarea')?.value;
  const headers = new Headers(of('header'));
  if (key !== undefined) headers.set('authorization', `Bearer ${key}`);
  if (body !== undefined) headers.set('content-type', 'application/json');
  return [target + (query && `?${query}`), { method, headers, body, cache: 'no-store' }];
}

function prettyJson(text) {
  // Integers beyond 2^53 would be rounded.
  try {
    return /(?:^|[[:,])\s*-?\d{16}/.test(text) ? text : JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

async function send(operation) {
  const status = operation.querySelector('.status');
  const place = operation.querySelector('.answer code');
  const headers = operation.querySelector('.headers');
  const unsendable = all('[data-in="header"]', operation).find(({ value }) => /[^ -~]/.test(value));
  if (unsendable !== undefined) {
    status.textContent = 'Not sent';
    place.textContent = `${unsendable.name} can contain only letters, digits and signs of ASCII.`;
    return;
  }
  const begun = performance.now();
  status.textContent = 'Waiting …';
  try {
    const [target, init] = requestOf(operation);
    const response = await fetch(target, init);
    const text = await response.text();
    status.textContent = `${response.status} ${response.statusText} · ${Math.round(performance.now() - begun)} ms`;
    place.textContent = prettyJson(text);
    headers.querySelector('pre').textContent = [...response.headers]
      .map(([name, value]) => `${name}: ${value}`)
      .join('\n');
    headers.hidden = false;
  } catch (fault) {
    status.textContent = 'No response';
    place.textContent = fault.message;
  }
  void refresh();
}

for (const operation of all('.operation'))
  operation.querySelector('form').addEventListener('submit', (event) => {
    event.preventDefault();
    takeKey();
    void send(operation);
  });

showSamples();
