import { setText } from './dom.js';

/** Newer and Older below a list, which knows only where to go on. */
export class Pager {
  /** Where the pages begin that lead here. */
  #offsets = [0];
  #next;
  #previousButton;
  #nextButton;
  #range;

  /** @param turned is called when another page is wanted */
  constructor(list, turned) {
    this.#previousButton = document.querySelector(`#${list}-previous`);
    this.#nextButton = document.querySelector(`#${list}-next`);
    this.#range = document.querySelector(`#${list}-range`);
    this.#nextButton.addEventListener('click', () => this.#turn(() => this.#offsets.push(this.#next), turned));
    this.#previousButton.addEventListener('click', () => this.#turn(() => this.#offsets.pop(), turned));
  }

  get offset() {
    return this.#offsets.at(-1);
  }

  toStart() {
    this.#offsets = [0];
  }

  show({ next }, text) {
    this.#next = next;
    this.#previousButton.disabled = this.#offsets.length === 1;
    this.#nextButton.disabled = next === undefined;
    setText(this.#range, text);
  }

  async #turn(move, turned) {
    move();
    this.#nextButton.disabled = true;
    this.#previousButton.disabled = true;
    await turned();
  }
}
