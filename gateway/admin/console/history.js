import { callApi } from './api.js';
import { ask } from './dialog.js';
import { button, element, makeRow, Rows, tell, time } from './dom.js';
import { askedOf, differences, who } from './who.js';

/** The last changes of plans; the newest can be taken back. */

const COLUMNS = ['When', 'Who', 'What', 'Why', ''];
const SHOWN = 8;

export class History {
  #changed;
  #rows = new Rows(document.querySelector('#history'), COLUMNS, (change) => this.#makeRow(change));

  /** @param changed is called after a change of ours */
  constructor(changed) {
    this.#changed = changed;
  }

  async refresh() {
    const { body } = await callApi('GET', `/plans/history?limit=${SHOWN}`);
    const changes = body.history.map((change, at) => ({ ...change, isLast: at === 0 }));
    this.#rows.show(changes, 'Nobody has changed a plan yet.');
  }

  #makeRow(change) {
    const { at, author, action, changes, reason } = change;
    const rollBack = button('Roll back …', () => this.#rollBack(change));
    const what = action === 'set' ? [] : [`${action}: `];
    const [person, why] = [author, reason || '–'].map((text) => element('span', { class: 'wordy' }, text));
    const row = makeRow(COLUMNS, [
      time(at),
      person,
      element('span', { class: 'wordy' }, ...what, inWords(changes)),
      why,
      rollBack,
    ]);
    return {
      row,
      update({ isLast }) {
        rollBack.hidden = !isLast;
      },
    };
  }

  #rollBack({ id, changes }) {
    ask({
      title: 'Take back the last change',
      content: [differences(changes.map(({ field, from, to }) => ({ field, from: to, to: from })))],
      fields: who({ reason: `takes back ${id}` }),
      confirm: 'Roll back',
      act: async (values) => {
        await callApi('POST', '/plans/rollback', { body: { id, ...askedOf(values) } });
        await this.#changed();
        tell(`Taken back: ${inWords(changes)}.`);
      },
    });
  }
}

const inWords = (changes) =>
  changes.map(({ field, from = 'none', to = 'none' }) => `${field} ${from} → ${to}`).join(', ');
