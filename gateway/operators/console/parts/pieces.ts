import type { BanView, BucketView, KeySummary } from '../../api/answers.ts';
import { type Content, html } from '../html.ts';
import { addressOfKey, addressOfKeys } from '../router.ts';
import type { Tags } from '../tags.ts';
import { clock, exactTime, number, percent, relative, runningBan, stateInWords, tooSmallInWords } from '../words.ts';

/** Small parts that several pages share. */

export const KeyLink = ({ id, name }: { id: string; name: string }) =>
  html`<a class="key-link" href=${addressOfKey(id)}><span class="name">${name}</span></a><code class="id">${id}</code>`;

/** Shows the tags of a key. Each links to the keys that have it. */
export const TagChips = ({ tags }: { tags: Tags | undefined }) =>
  tags !== undefined &&
  html`<span class="tags">${Object.entries(tags).map(
    ([name, value]) => html`<a class="tag" href=${addressOfKeys({ tag: `${name}:${value}` })}>${name}=${value}</a> `,
  )}</span>`;

export const State = ({ state }: { state: string }) =>
  html`<span class=${`badge ${state}`}>${stateInWords(state)}</span>`;

/** Shows the state of a key, and notes a ban or that its limits are too small. */
export const StateOf = (key: KeySummary) =>
  html`<${State} state=${key.state} /> ${
    key.bannedUntil === undefined
      ? key.tooSmall && html`<span class="note">${tooSmallInWords(key.waitSeconds)}</span>`
      : html`<span class="note">${runningBan(key)}</span>`
  }`;

/** Notes a ban where the state of the key is not shown. */
export const BanNote = ({ ban }: { ban: BanView | undefined }) =>
  ban !== undefined && html`<span class="note">banned ${runningBan(ban)}</span>`;

/** Shows a point in time, with the exact time on hover. */
export const When = ({ at }: { at: string }) =>
  html`<time datetime=${at} title=${exactTime(at)}>${clock(at)}</time> <span class="note">${relative(at)}</span>`;

export const Card = ({
  title,
  actions,
  children,
  id,
}: {
  title: string;
  actions?: Content;
  children: Content;
  id: string;
}) =>
  html`
    <section class="card" aria-labelledby=${id}>
      <div class="card-head"><h2 id=${id}>${title}</h2>${actions}</div>
      ${children}
    </section>
  `;

/** Shows how much of a limit is used. */
export function Meter({ bucket, label }: { bucket: BucketView | undefined; label: string }) {
  if (bucket === undefined) return html`<span class="note">no limit</span>`;
  const { used, limit } = bucket;
  const share = used / limit;
  const level = share >= 1 ? 'full' : share >= 0.8 ? 'near' : 'low';
  return html`
    <span class=${`meter ${level}`}>
      <span class="number">${number(used)} / ${number(limit)}</span>
      <meter min="0" max=${limit} value=${used} aria-label=${`${label}: ${percent(used, limit)} used`}></meter>
    </span>
  `;
}

interface PagerProps<Place> {
  readonly isNewest: boolean;
  /** Where the list continues; undefined at its end. */
  readonly next: Place | undefined;
  /** @param to undefined for the newest page */
  onTurn(to: Place | undefined): void;
}

/** Shows "Newest" and "Older". The browser's Back also leads to the previous page. */
export const Pager = <Place>({ isNewest, next, onTurn }: PagerProps<Place>) =>
  (!isNewest || next !== undefined) &&
  html`<p class="bar">
    <button type="button" disabled=${isNewest} onClick=${() => onTurn(undefined)}>Newest</button>
    <button type="button" disabled=${next === undefined} onClick=${() => onTurn(next)}>Older</button>
  </p>`;
