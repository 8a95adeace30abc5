import { callApi, listFrom } from './api.js';
import { element, makeRow, Rows, rowButton, setText, tell, time } from './dom.js';
import { pathOf } from './key-dialogs.js';
import { Pager } from './pager.js';

/** Bans that run, each with a button that ends it. */

const COLUMNS = ['Key', 'Plan', 'Until', 'Bans in a row', 'Why', ''];

export class Bans {
  #changed;
  #rows = new Rows(document.querySelector('#bans'), COLUMNS, (key) => this.#makeRow(key));
  #pager = new Pager('bans', () => this.#changed());

  /** @param changed is called after a change of ours, and when another page is wanted */
  constructor(changed) {
    this.#changed = changed;
  }

  async refresh() {
    const { offset } = this.#pager;
    const list = await listFrom('/bans?', 'bans', offset);
    if (offset !== this.#pager.offset) return;
    this.#rows.show(list.bans, 'Nobody is banned.');
    this.#pager.show(list, '');
  }

  #makeRow({ id, name, plan }) {
    const [until, bans, why] = Array.from({ length: 3 }, () => element('span', { class: 'number' }));
    why.className = 'wordy';
    const lift = rowButton('Lift', name, async () => {
      await callApi('DELETE', `${pathOf(id)}/ban`).then(
        () => tell(`The ban of ${name} is lifted.`),
        ({ message }) => tell(message),
      );
      await this.#changed();
    });
    const head = element('span', {}, element('span', { class: 'name wordy' }, name), element('code', {}, id));
    const row = makeRow(COLUMNS, [head, plan, until, bans, why, lift]);
    const update = (key) => {
      const { bannedUntil, banReason } = key;
      if (until.dataset.at !== bannedUntil) until.replaceChildren(time(bannedUntil));
      until.dataset.at = bannedUntil;
      setText(bans, String(key.bans));
      setText(why, banReason ?? '–');
    };
    return { row, update };
  }
}
