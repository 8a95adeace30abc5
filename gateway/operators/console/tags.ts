/** The gateway's own rules for tags and for sums by tag. */

export { readTags, TAG_NAME_RULE, TAG_VALUE_RULE, type Tags, writeTags } from '../../limiter/tags.ts';
export { largestFirst, UsageSums } from '../api/usage-sums.ts';
