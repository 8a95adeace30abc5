import { appendFile, readFile, rename } from 'node:fs/promises';
import { throughDraft } from '../../../shared/process/draft.ts';
import {
  ACTIVITY_LENGTH,
  Activity,
  type ActivityPage,
  type ActivityQuery,
  type ActivityStore,
  LOOKED_BACK,
  RecordedActivity,
} from '../activity-entry.ts';
import { nextRecordId } from '../plan-history.ts';

const OWNER_ONLY = 0o600;

interface FileActivityOptions {
  /** Entries that are kept. */
  readonly length?: number;
  /** Called with an entry that could not be written although what it tells is done. */
  readonly onLost?: OnLost;
}

type OnLost = (entry: Activity, why: string) => void;

/**
 * The activity of a standalone gateway: a file of JSON lines, the oldest first. Once it has twice the lines that are
 * kept, the older half is dropped. An entry is written after what it tells; a crash in between loses it.
 */
export class FileActivity implements ActivityStore {
  readonly #path: string;
  readonly #length: number;
  readonly #onLost: OnLost;
  /** The entries that are kept, the oldest first. */
  #entries: RecordedActivity[];
  #lines: number;
  /** Whether the file ends within a line, after a crash or a failed write. The next entry must not continue that line. */
  #isTorn: boolean;
  #last: Promise<void> = Promise.resolve();

  private constructor(
    path: string,
    text: string,
    { length = ACTIVITY_LENGTH, onLost = () => {} }: FileActivityOptions,
  ) {
    const lines = text.split('\n').filter((line) => line !== '');
    this.#path = path;
    this.#length = length;
    this.#onLost = onLost;
    this.#lines = lines.length;
    this.#isTorn = text !== '' && !text.endsWith('\n');
    this.#entries = lines.flatMap((line) => readEntry(line) ?? []).slice(-length);
  }

  /** @throws the system's error if the file exists but cannot be read */
  static async open(path: string, options: FileActivityOptions = {}): Promise<FileActivity> {
    const text = await readFile(path, 'utf8').catch((fault: NodeJS.ErrnoException) => {
      if (fault.code === 'ENOENT') return '';
      throw fault;
    });
    return new FileActivity(path, text, options);
  }

  /** One entry at a time. Never throws: what it tells is done. */
  record(entry: Activity): Promise<void> {
    this.#last = this.#last.then(() => this.#add(entry)).catch((fault: Error) => this.#onLost(entry, fault.message));
    return this.#last;
  }

  async list({ after, limit, isWanted }: ActivityQuery): Promise<ActivityPage> {
    const newestFirst = this.#entries.toReversed().filter(isWanted);
    const older = newestFirst.filter(({ id }) => after === undefined || compareIds(id, after) < 0);
    const activity = older.slice(0, limit);
    return { activity, next: older.length > limit ? activity.at(-1)?.id : undefined };
  }

  async #add(entry: Activity): Promise<void> {
    if (this.#isRepetition(entry)) return;
    const recorded = { id: nextRecordId(this.#entries.at(-1)?.id), ...entry };
    const text = `${this.#isTorn ? '\n' : ''}${JSON.stringify(recorded)}\n`;
    this.#isTorn = true;
    await appendFile(this.#path, text, { mode: OWNER_ONLY, flush: true });
    this.#isTorn = false;
    this.#lines += 1;
    this.#entries = [...this.#entries, recorded].slice(-this.#length);
    // If the older half cannot be dropped now, a later entry does it.
    if (this.#lines >= 2 * this.#length) await this.#rewrite().catch(() => undefined);
  }

  #isRepetition(entry: Activity): boolean {
    const newest = this.#entries.slice(-LOOKED_BACK).findLast(({ target }) => target === entry.target);
    return newest !== undefined && textOf(newest) === textOf(entry);
  }

  async #rewrite(): Promise<void> {
    const text = this.#entries.map((entry) => `${JSON.stringify(entry)}\n`).join('');
    await throughDraft(this.#path, text, rename);
    this.#lines = this.#entries.length;
  }
}

/** Equal for equal entries, whatever the order of their members. */
const textOf = (entry: Activity): string => JSON.stringify(Activity.parse(entry));

function readEntry(line: string): RecordedActivity | undefined {
  try {
    return RecordedActivity.parse(JSON.parse(line));
  } catch {
    return undefined;
  }
}

function compareIds(a: string, b: string): number {
  const [[aTime = 0, aCount = 0], [bTime = 0, bCount = 0]] = [a, b].map((id) => id.split('-').map(Number)) as [
    number[],
    number[],
  ];
  return aTime - bTime || aCount - bCount;
}
