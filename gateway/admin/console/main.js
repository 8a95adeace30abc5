import { ApiError, callApi, forgetToken, keepToken, keptToken, Unreachable } from './api.js';
import { Bans } from './bans.js';
import { closeDialogs } from './dialog.js';
import { setText, tell } from './dom.js';
import { History } from './history.js';
import { Keys } from './keys.js';
import { Plans } from './plans.js';
import { repeat } from './repeat.js';
import { Traffic } from './traffic.js';
import { forgetAuthor } from './who.js';

/** The operators' console: logs in, shows its sections, and keeps them up to date until it logs out. */

const TRAFFIC_EVERY_MS = 1_000;
const LISTS_EVERY_MS = 3_000;

const WRONG_TOKEN = 'This is not the token of this gateway.';

const main = document.querySelector('main');
const form = document.querySelector('#log-in');
const token = document.querySelector('#token');
const fault = document.querySelector('#token-fault');
const logOutButton = document.querySelector('#log-out');
let ending = new AbortController();

form.addEventListener('submit', async (event) => {
  event.preventDefault();
  setText(fault, '');
  const typed = token.value.trim();
  // What no header can carry is no token, and would not even be sent.
  if (!/^[\x21-\x7e]+$/.test(typed)) return setText(fault, WRONG_TOKEN);
  try {
    await callApi('GET', '/plans', { token: typed });
    keepToken(typed);
    open();
  } catch (thrown) {
    setText(fault, inWords(thrown));
    token.select();
  }
});

logOutButton.addEventListener('click', () => logOut('You are logged out.'));
addEventListener('token-refused', () => logOut('The token is not accepted any more.'));

if (keptToken() === null) askForToken();
else open();

function askForToken() {
  form.hidden = false;
  token.focus();
}

function inWords({ status, message, retryAfter }) {
  if (status === 401) return WRONG_TOKEN;
  if (status === 429) return `Too many wrong tokens from here. Wait ${retryAfter} s before the next.`;
  return message;
}

/** Shows the console. The token is nowhere on the page by then. */
function open() {
  form.hidden = true;
  token.value = '';
  logOutButton.hidden = false;
  main.append(document.querySelector('#console').content.cloneNode(true));
  ending = new AbortController();
  keepUpToDate(ending.signal);
}

function keepUpToDate(signal) {
  const refresh = async (...sections) => {
    traffic.isStoreAway = await settled(sections.map((section) => section.refresh()));
  };
  const lists = () => refresh(keys, bans);
  const all = () => refresh(plans, history, keys, bans);
  const [plans, history] = [new Plans(all), new History(all)];
  const [keys, bans] = [new Keys(lists), new Bans(lists)];
  const traffic = new Traffic();

  repeat(
    async () => {
      const table = await traffic.refresh();
      if (signal.aborted || table === undefined) return;
      plans.showRejected(table.rejected);
      if (table.version !== plans.version) await refresh(plans, history);
    },
    TRAFFIC_EVERY_MS,
    signal,
  );
  repeat(lists, LISTS_EVERY_MS, signal);
}

/**
 * What the gateway refuses is told. That it does not answer, the state of the page tells already.
 * @returns whether keys and plans are out of the gateway's reach
 */
async function settled(tasks) {
  let isStoreAway = false;
  for (const { reason } of await Promise.allSettled(tasks)) {
    if (reason === undefined || reason instanceof Unreachable || reason.status === 401) continue;
    if (!(reason instanceof ApiError)) throw reason;
    if (reason.status === 503) isStoreAway = true;
    else tell(reason.message);
  }
  return isStoreAway;
}

/** Leaves nothing behind: no token, no data on the page, no question open. */
function logOut(why) {
  forgetToken();
  forgetAuthor();
  ending.abort();
  closeDialogs();
  main.querySelector('.console')?.remove();
  logOutButton.hidden = true;
  setText(fault, why);
  askForToken();
}
