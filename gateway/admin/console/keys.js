import { callApi, listFrom } from './api.js';
import { element, makeRow, Rows, rowButton, setText, tell } from './dom.js';
import { askForBan, askForKey, askForRevocation, askForRotation, pathOf } from './key-dialogs.js';
import { Pager } from './pager.js';

/** Keys with their buckets, a page at a time, and what can be done with each. */

const COLUMNS = ['Key', 'Plan', 'State', 'Left this minute', 'Left today', 'Admitted', 'Refused', 'Actions'];
const PAGE = 20;

export class Keys {
  #name = '';
  #changed;
  #rows = new Rows(document.querySelector('#keys'), COLUMNS, (key) => this.#makeRow(key));
  #pager = new Pager('keys', () => this.#changed());

  /** @param changed is called after a change of ours, and when another page is wanted */
  constructor(changed) {
    this.#changed = changed;
    document.querySelector('#key-search').addEventListener('submit', (event) => {
      event.preventDefault();
      this.#name = document.querySelector('#key-name').value.trim();
      this.#pager.toStart();
      changed();
    });
    document.querySelector('#issue-key').addEventListener('click', () => askForKey(changed));
  }

  async refresh() {
    const [name, { offset }] = [this.#name, this.#pager];
    const query = new URLSearchParams({ limit: PAGE, ...(name && { name }) });
    const list = await listFrom(`/keys?${query}`, 'keys', offset);
    // Another page, or another name, was asked for meanwhile.
    if (name !== this.#name || offset !== this.#pager.offset) return;
    this.#rows.show(list.keys, name ? `No key’s name holds “${name}”.` : 'There is no key yet. Issue the first one.');
    this.#pager.show(list, `${list.keys.length} shown, ${list.total} in all, the newest first`);
  }

  #makeRow({ id, name }) {
    const title = element('span', { class: 'name wordy' });
    const [plan, state, admitted, refused] = Array.from({ length: 4 }, () => element('span', { class: 'number' }));
    state.className = 'state';
    const [minute, day] = [makeBar(), makeBar()];
    const actions = this.#makeActions({ id, name });
    const head = element('span', {}, title, element('code', {}, id));
    const row = makeRow(COLUMNS, [head, plan, state, minute.root, day.root, admitted, refused, actions.root]);
    const update = (key) => {
      setText(title, key.name);
      setText(plan, key.plan);
      setText(state, key.state);
      state.dataset.state = key.state;
      minute.show(key.buckets?.minute);
      day.show(key.buckets?.day);
      setText(admitted, String(key.admitted));
      setText(refused, String(key.refused));
      actions.show(key);
    };
    return { row, update };
  }

  #makeActions(key) {
    const { id, name } = key;
    let isDisabled = false;
    const toggle = rowButton('', name, async () => {
      await callApi('PATCH', pathOf(id), { body: { disabled: !isDisabled } }).then(
        () => tell(`${name} is ${isDisabled ? 'enabled' : 'disabled'}.`),
        ({ message }) => tell(message),
      );
      await this.#changed();
    });
    const others = [
      rowButton('Rotate …', name, () => askForRotation(key, this.#changed)),
      rowButton('Ban …', name, () => askForBan(key, this.#changed)),
      rowButton('Revoke …', name, () => askForRevocation(key, this.#changed)),
    ];
    return {
      root: element('span', { class: 'bar' }, toggle, ...others),
      show({ state }) {
        isDisabled = state === 'disabled';
        setText(toggle.firstChild, isDisabled ? 'Enable' : 'Disable');
      },
    };
  }
}

/** A bucket as a bar, with its numbers beside it. */
function makeBar() {
  const meter = element('meter', { min: '0', 'aria-label': 'requests left' });
  const text = element('span', { class: 'number' });
  return {
    root: element('span', { class: 'bucket' }, meter, text),
    show(bucket) {
      meter.hidden = bucket === undefined;
      if (bucket !== undefined) {
        meter.max = bucket.limit;
        meter.value = bucket.remaining;
      }
      setText(text, bucket === undefined ? '–' : `${bucket.remaining} / ${bucket.limit}`);
    },
  };
}
