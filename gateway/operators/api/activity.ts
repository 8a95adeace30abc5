import { z } from 'zod';
import { must } from '../../../shared/schemas/must.ts';
import { isKeyId } from '../../limiter/credential.ts';
import { type RecordedActivity, RecordId } from '../../stores/audit.ts';
import { ACTIONS } from '../../stores/words.ts';
import { redactSecrets } from '../access-token.ts';
import type { ActivityAnswer, ActivityView } from './answers.ts';
import type { AdminDependencies, AdminOperation } from './operation.ts';
import { checkOrder, choice, cursor, msOf, period, readQuery, wholeNumber } from './query.ts';

const PAGE = 100;
const MOST = 1_000;

const word = z.string({ error: must('be given once') }).optional();

export const ActivityQuery = z.object({
  limit: wholeNumber(1, MOST).default(PAGE),
  after: cursor((given) => RecordId.safeParse(given).success),
  actor: word,
  action: choice(ACTIONS).optional(),
  /** The id or the name of a key or a token, or the name of a plan, in upper or lower case. */
  target: word,
  ...period,
});

/**
 * Who did what, when and why, the newest first. `after` is the `next` of another answer. With `actor`, `action`,
 * `target`, `from` or `to`, only matching entries are listed. One call checks a few thousand, so a page can be short
 * and still have a `next`.
 */
export const listActivity: AdminOperation = async ({ deps, query }) => {
  const { limit, after, actor, action, target, ...given } = readQuery(ActivityQuery, query);
  const [from, to] = [msOf(given.from), msOf(given.to)];
  checkOrder(from, to);
  const names = new TargetNames(deps);
  const isWanted = async (one: RecordedActivity) =>
    (actor ?? one.actor) === one.actor &&
    (action ?? one.action) === one.action &&
    (target === undefined || (await names.isAbout(one, target)));
  const { activity, next } = await deps.activity.list({ after, limit, isWanted, from, to });
  const logged = new Map(activity.toReversed().flatMap((one) => (nameIn(one) ? [[one.target, nameIn(one)]] : [])));
  const views = activity.map(async (one) => describe(one, (await names.of(one)) ?? logged.get(idIn(one))));
  return { status: 200, body: { activity: await Promise.all(views), next } satisfies ActivityAnswer };
};

function describe({ id, ...entry }: RecordedActivity, name: string | undefined): ActivityView {
  // Somebody may have written a secret into a name.
  const targetName = name && redactSecrets(name);
  return { id, at: new Date(Number.parseInt(id, 10)).toISOString(), ...entry, targetName };
}

/** The key of a secret such as `id/secret`, or else the target itself. */
const idIn = ({ target }: RecordedActivity): string => target.split('/', 1)[0] as string;

/** The name that a key or a token got, or had, according to an entry. */
function nameIn({ action, changes }: RecordedActivity): string | undefined {
  const named = /^(?:key|token)\./.test(action) ? changes.find(({ field }) => field === 'name') : undefined;
  return named?.to ?? named?.from;
}

/**
 * The current names of tokens, and the names of keys, including those revoked in the last 36 days. Each is looked up
 * once per answer. Without the store, the log is shown without them.
 */
class TargetNames {
  readonly #deps: AdminDependencies;
  readonly #ofKeys = new Map<string, Promise<string | undefined>>();
  #tokens: ReturnType<AdminDependencies['tokens']['list']> | undefined;

  constructor(deps: AdminDependencies) {
    this.#deps = deps;
  }

  async of(entry: RecordedActivity): Promise<string | undefined> {
    return await (entry.action.startsWith('token.') ? this.#ofToken(entry.target) : this.#ofKey(idIn(entry))).catch(
      () => undefined,
    );
  }

  /** Whether an entry is about a target, by its id or its name. */
  async isAbout(entry: RecordedActivity, target: string): Promise<boolean> {
    const isSame = (text: string | undefined) => text?.toLowerCase() === target.toLowerCase();
    return isSame(entry.target) || isSame(idIn(entry)) || isSame(nameIn(entry)) || isSame(await this.of(entry));
  }

  async #ofToken(id: string): Promise<string | undefined> {
    this.#tokens ??= this.#deps.tokens.list();
    return (await this.#tokens).get(id)?.name;
  }

  async #ofKey(id: string): Promise<string | undefined> {
    if (!isKeyId(id)) return undefined;
    const name = this.#ofKeys.get(id) ?? this.#deps.keys.everKnown(id).then((key) => key?.record.name || undefined);
    this.#ofKeys.set(id, name);
    return await name;
  }
}
