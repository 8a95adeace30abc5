import type { LogName, RecordName } from '../storage.ts';

/**
 * Names in Redis. All names that one step changes share a tag (a key's id, or the name of a table), and are therefore
 * in one slot of a cluster.
 */

/** Ids by time of creation in Unix seconds: one set for existing keys, and one for those revoked recently. */
export const INDEX = 'gateway:keys';
export const REVOKED_INDEX = 'gateway:keys:revoked';

export const STREAMS: Readonly<Record<LogName, string>> = {
  audit: 'gateway:activity',
  'plan history': 'gateway:plans:history',
};

export const keyOf = (id: string): string => `gateway:key:{${id}}`;

/** A key's usage marks, which are long and seldom needed. They expire once all of them are too old. */
export const marksOf = (id: string): string => `gateway:marks:{${id}}`;

/** A key's tags, as people type them. Decisions do not read them. */
export const tagsOf = (id: string): string => `gateway:tags:{${id}}`;

export const TAG_FIELDS = ['tags', 'ok_tags'] as const;

/** The hashes beside a key's own. They keep it small, because every decision reads it. */
export const hashesBeside = (id: string): string[] => [marksOf(id), tagsOf(id)];

/** The name of the hash that contains a field of a key. */
export function hashOf(id: string, field: string): string {
  if (field.startsWith('usage_')) return marksOf(id);
  return TAG_FIELDS.some((one) => one === field) ? tagsOf(id) : keyOf(id);
}

/** The fields that a hash of a key contains. Those that people typed into another hash have no meaning. */
export const fieldsIn = <Value>(name: string, id: string, fields: Readonly<Record<string, Value>>) =>
  Object.fromEntries(Object.entries(fields).filter(([field]) => hashOf(id, field) === name));

/** What remains of a revoked key. */
export const usageOf = (id: string): string => `gateway:usage:{${id}}`;

export function nameOf(record: RecordName): string {
  const [, kind, id = ''] = /^(key|revoked):(.*)$/s.exec(record) ?? [];
  if (kind !== undefined) return kind === 'key' ? keyOf(id) : usageOf(id);
  return record === 'plans:kept' ? 'gateway:kept:{gateway:plans}' : `gateway:${record}`;
}

export const tagOf = (record: RecordName): string => /\{(.*)\}$/.exec(nameOf(record))?.[1] ?? nameOf(record);

/** The mark of a change that was made or called off. It expires. */
export const markOf = (tag: string, id: string): string => `gateway:change:{${tag}}:${id}`;

/** On a cluster, the entries that still have to be moved to their streams. */
export const outboxOf = (tag: string): string => `gateway:outbox:{${tag}}`;
/** A set of the changes that may have left entries in an outbox. */
export const OUTBOXES = 'gateway:outboxes';

/** Whether a name is not data: changes and gateways leave it behind for a while. */
export const isPassing = (name: string): boolean =>
  /^gateway:(change:|outbox|gateways$|questions:|answers:)/.test(name);
