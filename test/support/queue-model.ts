/**
 * The waiting clients of a key and its early requests, as plain lists: one entry per waiting client with its time, and
 * one per moment with early requests. queue.ts explains the rules.
 */

export const SECOND = 1_000_000;
export const MINUTE = 60 * SECOND;
const DAY = 86_400 * SECOND;
const LEEWAY = SECOND / 4;

/** Values for judging early requests: from the plan, the current minute limit and the plan's own. */
interface Judged {
  readonly ban_after: number;
  readonly ban_within_seconds: number;
  readonly minute: number;
  readonly standard: number;
}

/** Where a client waits: in line, with the group that comes together, or with an earlier group set apart. */
interface Waiter {
  readonly at: number;
  readonly stands: 'in line' | 'in group' | 'before group';
}

/** Up to one second with early requests, and how many of them counted. */
interface Moment {
  readonly at: number;
  readonly counted: number;
}

interface Told {
  readonly at: number;
  readonly place: number;
  readonly every: number;
}

interface Waits {
  ticksUntil(tokens: number): number;
}

export class ModelQueue {
  readonly #now: number;
  readonly #met: Set<string>;
  /** How long early requests are remembered, how many are too many, and how many count per moment. */
  readonly #window: number;
  readonly #borne: bigint;
  readonly #inAMoment: bigint;
  #free = 0;
  #waiters: Waiter[] = [];
  #every = 1;
  #forgetAt = 0;
  #moments: Moment[] = [];
  #since = 0;

  private constructor(now: number, judged: Judged, met: Set<string>) {
    this.#now = now;
    this.#met = met;
    const [after, within] = [BigInt(judged.ban_after), BigInt(judged.ban_within_seconds)];
    this.#window = Number((within * BigInt(SECOND) * 5n) / 6n);
    const inProportion = (after * BigInt(judged.minute)) / BigInt(judged.standard);
    const least = after < 10n ? after : 10n;
    const most = inProportion > least ? inProportion : least;
    this.#borne = most < 10n ? most : (most * 5n) / 4n;
    this.#inAMoment = most < 10n ? most : (this.#borne * 5n + 2n * within - 1n) / (2n * within);
  }

  /** The rest of a queue at `now`. `setBack` is how far the clock was set back meanwhile. */
  static asOf(before: ModelQueue | undefined, now: number, setBack: number, judged: Judged, met: Set<string>) {
    const queue = new ModelQueue(now, judged, met);
    if (before === undefined || before.#forgetAt === 0) return queue;
    if (before.#forgetAt - setBack <= now) {
      met.add('queue forgotten');
      return queue;
    }
    if (setBack > 0) met.add('set back with a queue');
    queue.#free = before.#free;
    queue.#every = before.#every;
    queue.#waiters = before.#waiters.map(({ at, stands }) => queue.#staysDue({ at: at - setBack, stands }));
    queue.#forgetAt = before.#forgetAt - setBack;
    queue.#moments = before.#moments.map(({ at, counted }) => ({ at: at - setBack, counted }));
    queue.#since = before.#since - setBack;
    if (queue.#moments.length > 0 && now >= queue.#since + queue.#window) {
      met.add('early requests forgotten');
      queue.#moments = [];
    }
    return queue;
  }

  /** A request may come up to a quarter of a second before its time, but at most a quarter of a place in line. */
  #mayCome({ at, stands }: Waiter): boolean {
    const inLine = this.#every < LEEWAY ? 0 : Math.min(LEEWAY, Math.floor(this.#every / 4));
    return at <= this.#now + (stands === 'in line' ? inLine : LEEWAY);
  }

  /** Whose time has come stays due, also where the line's leeway becomes less. */
  #staysDue(waiter: Waiter): Waiter {
    return this.#mayCome(waiter) ? { ...waiter, at: Math.min(waiter.at, this.#now) } : waiter;
  }

  #due(): Waiter[] {
    return this.#waiters.filter((waiter) => this.#mayCome(waiter));
  }

  #stillTold(where: Waiter['stands']): Waiter[] {
    return this.#waiters.filter((waiter) => waiter.stands === where && !this.#mayCome(waiter));
  }

  #line(): Waiter[] {
    return this.#stillTold('in line');
  }

  #group(): Waiter[] {
    return this.#stillTold('in group');
  }

  /** Whether a request cannot belong to a client that is due, while others wait. */
  isEarly(): boolean {
    return this.#free === 0 && this.#due().length === 0 && this.#waiters.length > 0;
  }

  /** Takes a request as that of a client that is due. @return whether it is early instead */
  arrive(isThere: boolean): boolean {
    if (this.isEarly()) {
      this.#countEarly();
      return true;
    }
    const [due] = this.#due();
    if (due !== undefined && (isThere || this.#free === 0)) {
      this.#met.add('came when told');
      this.#waiters = this.#waiters.filter((waiter) => waiter !== due);
    } else if (this.#free > 0) {
      this.#free -= 1;
    }
    return false;
  }

  #countEarly(): void {
    const [wasFirst, wasOnNotice] = [this.#moments.length === 0, this.isOnNotice()];
    let moment = this.#moments.at(-1);
    if (moment === undefined || this.#now - moment.at >= SECOND) moment = { at: this.#now, counted: 0 };
    else this.#moments = this.#moments.slice(0, -1);
    const isCounted = moment.counted < this.#inAMoment;
    if (!isCounted) this.#met.add('early and not counted');
    this.#moments = [...this.#moments, { at: moment.at, counted: moment.counted + (isCounted ? 1 : 0) }];
    if (wasFirst || (!wasOnNotice && this.isOnNotice())) this.#since = this.#now;
  }

  #early(): bigint {
    return BigInt(this.#moments.reduce((sum, { counted }) => sum + counted, 0));
  }

  isOnNotice(): boolean {
    const apart = this.#borne < 10n ? 1 : this.#every >= SECOND ? 2 : 3;
    return this.#moments.length >= apart && this.#early() * 60n >= this.#borne;
  }

  isTooMany(): boolean {
    return this.#early() >= this.#borne;
  }

  served(): void {
    // A key with no waiting clients has no state.
    if (this.#forgetAt > 0) this.#free += 1;
  }

  /**
   * The time for one more client: that of its place, in whole seconds. On notice: the end of the notice, or the group's
   * time.
   */
  tell(limits: { minute: number; day: number }, [minute, day]: readonly [minute: Waits, day: Waits]): Told {
    const place = this.#waiters.length + 1;
    const tokens = Math.min(place, limits.minute);
    const [minuteWait, dayWait] = [minute.ticksUntil(tokens), day.ticksUntil(tokens)];
    const tokenTime = dayWait > minuteWait ? BigInt(DAY) / BigInt(limits.day) : BigInt(MINUTE) / BigInt(limits.minute);
    const until = Math.max(minuteWait, dayWait, this.isOnNotice() ? this.#heldUntil() - this.#now : 0);
    const seconds = Math.max(1, Math.floor((until + SECOND - 1) / SECOND));
    return { at: this.#now + seconds * SECOND, place, every: Math.max(1, Number(tokenTime)) };
  }

  #noticeEnds(): number {
    return Math.min(this.#since + this.#window, this.#now + 50 * SECOND);
  }

  /** Whether the group comes before half of the wait is over and no other group is set apart. */
  #isGroupTooSoon(at: number): boolean {
    const [group] = this.#group();
    if (group === undefined || 2 * (group.at - this.#now) >= at - this.#now) return false;
    if (this.#stillTold('before group').length === 0) return true;
    this.#met.add('one group set apart at a time');
    return false;
  }

  #heldUntil(): number {
    const [group] = this.#group();
    const ends = this.#noticeEnds();
    return group === undefined || this.#isGroupTooSoon(ends) ? ends : group.at;
  }

  /** @param most places in line */
  join({ at, place, every }: Told, most: number): void {
    this.#forgetAt = Math.max(this.#forgetAt, at + (at - this.#now), this.#now + 2 * MINUTE);
    const end = this.#line().at(-1)?.at;
    const isBehind = end !== undefined && every === this.#every && at > end + this.#every;
    if (this.isOnNotice() || place > most || isBehind) this.#joinGroup(at, isBehind);
    else this.#joinLine(at, every, end);
  }

  /** A group comes together, with its first member. Clients with much later times are not part of it. */
  #joinGroup(at: number, isBehind: boolean): void {
    this.#met.add(this.isOnNotice() ? 'on notice' : isBehind ? 'behind the line' : 'beyond the line');
    if (this.#isGroupTooSoon(at)) this.#setGroupApart();
    const group = new Set(this.#group());
    const together = Math.min(at, ...[...group].map((waiter) => waiter.at));
    this.#waiters = this.#waiters.map((waiter) => (group.has(waiter) ? { ...waiter, at: together } : waiter));
    this.#waiters.push({ at: together, stands: 'in group' });
  }

  #setGroupApart(): void {
    this.#met.add('group set apart');
    const group = new Set(this.#group());
    this.#waiters = this.#waiters.map((waiter) => (group.has(waiter) ? { ...waiter, stands: 'before group' } : waiter));
  }

  /** A line is evenly spaced: a client before the next place moves all places forward. */
  #joinLine(at: number, every: number, end: number | undefined): void {
    const line = new Set(this.#line());
    const isOther = end !== undefined && every !== this.#every;
    if (isOther) this.#met.add('line of the other bucket');
    const sooner = end === undefined ? 0 : end + every - at;
    if (!isOther && sooner > 0) this.#met.add('line pulled forward');
    this.#waiters = this.#waiters.map((waiter) => {
      if (!line.has(waiter)) return waiter;
      return { ...waiter, at: isOther ? this.#now : waiter.at - sooner };
    });
    this.#waiters.push({ at, stands: 'in line' });
    this.#every = every;
    this.#met.add('in line');
  }
}
