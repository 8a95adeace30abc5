import { DAY, full, type Level, MINUTE, refill, SECOND } from '../limiter/bucket.ts';
import { NO_REFUSALS, nextPlace, patienceOf, refusalsAt, strikesLeft, withRefusal } from '../limiter/refusals.ts';

/** Draws the tokens over time of a key with 60 requests a minute and 1,000 a day, by the limiter's rules. */

const [PER_MINUTE, PER_DAY] = [60, 1_000];
const PATIENCE = patienceOf({}, PER_MINUTE);
const BAN_SECONDS = 300;

type Point = readonly [seconds: number, value: number];

/** The buckets and refusals of one key. Times are in seconds. */
class ExampleKey {
  refusals = NO_REFUSALS;
  readonly #limit: number;
  readonly #window: number;
  #level: Level;
  #at = 0;

  constructor(limit: number, window: number) {
    this.#limit = limit;
    this.#window = window;
    this.#level = full(limit);
  }

  tokensAt(seconds: number): number {
    this.#level = refill(this.#level, this.#limit, this.#window, seconds * SECOND - this.#at);
    this.#at = seconds * SECOND;
    return this.#level.tokens;
  }

  strikesAt(seconds: number): number {
    return PATIENCE.ban_after - strikesLeft(this.refusals, seconds * SECOND, PATIENCE);
  }

  /** @returns the second at which to send the request again if it is refused, and whether the refusal bans the key */
  send(seconds: number): { readonly place?: number; readonly isBanned?: boolean } {
    const tokens = this.tokensAt(seconds);
    if (tokens > 0) {
      this.#level = { ...this.#level, tokens: tokens - 1 };
      return {};
    }
    const now = this.#at;
    const before = refusalsAt(this.refusals, now, 0, PATIENCE);
    const place = nextPlace(before, now, [{ ...this.#level, limit: this.#limit, window: this.#window }]);
    const { refusals, isTooMany } = withRefusal(before, now, place, PATIENCE);
    this.refusals = refusals;
    return { place: place / SECOND, isBanned: isTooMany };
  }
}

interface Figure {
  readonly id: string;
  readonly title: string;
  /** The figure in words, for those who cannot see it. */
  readonly text: string;
  readonly seconds: number;
  readonly most: number;
  /** Lines by the name of their class. The first one shows the tokens. */
  readonly lines: Readonly<Record<string, readonly Point[]>>;
  readonly dots?: readonly Point[];
  /** The shaded period. */
  readonly shaded?: readonly [from: number, to: number];
  /** A value that is marked by a line across the figure. */
  readonly level?: number;
  readonly labels: readonly (readonly [...Point, text: string])[];
  readonly ticks: readonly (readonly [seconds: number, text: string])[];
}

/** Sends more requests at once than there are tokens. Each refused one is repeated after its Retry-After. */
function lineFigure(): Figure {
  const key = new ExampleKey(PER_MINUTE, MINUTE);
  const [burst, sentAt, seconds] = [80, 10, 105];
  const places = Array.from({ length: burst }, () => key.send(sentAt).place).filter((place) => place !== undefined);
  const tokens: Point[] = [
    [0, PER_MINUTE],
    [sentAt, PER_MINUTE],
    [sentAt, 0],
  ];
  for (const place of places) {
    key.send(place);
    tokens.push([place, key.tokensAt(place)]);
  }
  const last = places.at(-1) ?? sentAt;
  for (let at = last; at <= seconds; at++) tokens.push([at, key.tokensAt(at)]);
  return {
    id: 'line',
    title: `The line: ${burst} requests at once with ${PER_MINUTE} tokens`,
    text: `${burst} requests arrive at once. ${burst - places.length} take all tokens, and ${places.length} are refused. Each of them is sent again after its Retry-After of 1 to ${last - sentAt} seconds and takes the token that has just come back. Then the bucket fills up again within a minute.`,
    seconds,
    most: PER_MINUTE,
    lines: { tokens },
    dots: places.map((place): Point => [place, 0]),
    labels: [
      [sentAt + 1.5, 50, `${burst} at once: ${places.length} refused`],
      [last + 8, 5, 'each returns at its own second'],
    ],
    ticks: [0, 30, 60, 90].map((at) => [at, `${at} s`]),
  };
}

/** Sends ten times the limit, whatever the answers are. */
function banFigure(): Figure {
  const key = new ExampleKey(PER_MINUTE, MINUTE);
  const tokens: Point[] = [];
  const strikes: Point[] = [];
  let at = 0;
  for (let isBanned: boolean | undefined = false; !isBanned; at++) {
    tokens.push([at, key.tokensAt(at)]);
    strikes.push([at, key.strikesAt(at)]);
    for (let tenth = 0; tenth < 10 && !isBanned; tenth++) isBanned = key.send(at + tenth / 10).isBanned;
  }
  const bannedAt = at;
  strikes.push([bannedAt, PATIENCE.ban_after], [bannedAt, 0]);
  const end = bannedAt + BAN_SECONDS;
  for (; at <= end; at++) tokens.push([at, key.tokensAt(at)]);
  return {
    id: 'ban',
    title: `The ban: ${10 * PER_MINUTE} requests a minute that ignore every refusal`,
    text: `The tokens are gone within seconds. Strikes grow by one a second until ${PATIENCE.ban_after} are held. ${PATIENCE.ban_grace_seconds} seconds later, after ${bannedAt} seconds in all, the key is banned for ${BAN_SECONDS} seconds. The ban clears the strikes, and the bucket is full when it ends.`,
    seconds: end + 20,
    most: PATIENCE.ban_after,
    lines: { tokens, strikes },
    shaded: [bannedAt, end],
    labels: [
      [60, 165, 'strikes'],
      [110, 14, 'tokens: none left'],
      [bannedAt + 90, PATIENCE.ban_after - 40, 'banned'],
      [bannedAt + 90, PER_MINUTE + 12, 'tokens'],
    ],
    ticks: [0, 120, 240, 360, 480, 600].map((second) => [second, `${second / 60} min`]),
  };
}

/** Sends a hundred requests an hour, which takes more of a day's thousand tokens than come back. */
function dayFigure(): Figure {
  const key = new ExampleKey(PER_DAY, DAY);
  const [hour, every] = [3_600, 36];
  const tokens: Point[] = [];
  let [near, out] = [0, 0];
  for (let at = 0; at <= 24 * hour; at += every) {
    const left = key.tokensAt(at);
    if (near === 0 && left * 5 <= PER_DAY) near = at;
    if (out === 0 && left === 0) out = at;
    if (at % (hour / 4) === 0 || at === near || at === out) tokens.push([at, left]);
    key.send(at);
  }
  const hours = (at: number) => `${Math.round(at / hour)}`;
  return {
    id: 'day',
    title: `The 80 % signal: 100 requests an hour with ${PER_DAY.toLocaleString('en-US')} a day`,
    text: `Requests are used faster than they come back. After ${hours(near)} hours 80 % are used and 200 tokens are left: the first notification. After ${hours(out)} hours none is left: the second one. From then on requests are admitted as tokens come back, one every 86.4 seconds.`,
    seconds: 24 * hour,
    most: PER_DAY,
    lines: { tokens },
    dots: [
      [near, PER_DAY / 5],
      [out, 0],
    ],
    level: PER_DAY / 5,
    labels: [
      [near, PER_DAY / 5 + 60, '80 % used'],
      [out - 0.2 * hour, 60, 'all used'],
    ],
    ticks: [0, 6, 12, 18, 24].map((at) => [at * hour, `${at} h`]),
  };
}

const [WIDTH, HEIGHT] = [440, 200];
const [LEFT, TOP, BOTTOM] = [44, 14, 172];

function draw({ id, title, text, seconds, most, lines, dots = [], shaded, level, labels, ticks }: Figure): string {
  const x = (at: number) => Math.round((LEFT + (at / seconds) * (WIDTH - LEFT - 16)) * 10) / 10;
  const y = (value: number) => Math.round((BOTTOM - (value / most) * (BOTTOM - TOP)) * 10) / 10;
  const across = (value: number, kind: string) =>
    `<path class="${kind}" d="M${LEFT} ${y(value)}H${WIDTH - 16}" /><text class="of-value" x="${LEFT - 6}" y="${y(value) + 4}">${value.toLocaleString('en-US')}</text>`;
  const parts = [
    shaded &&
      `<rect class="shaded" x="${x(shaded[0])}" y="${TOP}" width="${x(shaded[1]) - x(shaded[0])}" height="${BOTTOM - TOP}" />`,
    across(0, 'axis'),
    across(most, 'axis'),
    level !== undefined && across(level, 'level'),
    ...ticks.map(([at, words]) => `<text class="of-time" x="${x(at)}" y="${BOTTOM + 20}">${words}</text>`),
    ...Object.entries(lines).map(
      ([kind, points]) => `<path class="${kind}" d="M${pathOf(points.map(([at, value]) => [x(at), y(value)]))}" />`,
    ),
    ...dots.map(([at, value]) => `<circle class="dot" cx="${x(at)}" cy="${y(value)}" r="3.5" />`),
    ...labels.map(([at, value, words]) => `<text x="${x(at)}" y="${y(value)}">${words}</text>`),
  ];
  return `<figure>
<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-labelledby="figure-${id}"><desc id="figure-${id}">${text}</desc>
${parts.filter(Boolean).join('\n')}
</svg>
<figcaption>${title}</figcaption>
</figure>`;
}

/** Leaves out points on a straight line between their neighbours. */
const pathOf = (points: readonly Point[]): string =>
  points
    .filter((point, at) => !isBetween(points[at - 1], point, points[at + 1]))
    .map((point) => point.join(' '))
    .join('L');

const isBetween = (before: Point | undefined, [x, y]: Point, after: Point | undefined): boolean =>
  before !== undefined &&
  after !== undefined &&
  Math.abs((x - before[0]) * (after[1] - before[1]) - (y - before[1]) * (after[0] - before[0])) < 0.1;

/** The figures by their marks in the page. */
export const FIGURES: Readonly<Record<string, string>> = Object.fromEntries(
  [lineFigure(), banFigure(), dayFigure()].map((figure) => [`figure-${figure.id}`, draw(figure)]),
);
