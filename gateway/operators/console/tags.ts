/** The gateway's own rules for tags. */

export { readTags, TAG_NAME_RULE, TAG_VALUE_RULE, type Tags, writeTags } from '../../limiter/tags.ts';
