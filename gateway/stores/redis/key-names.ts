/** The names of the two hashes of an API key. They are in the same slot of a cluster. */

export const keyOf = (id: string): string => `gateway:key:{${id}}`;

/** What is left of a revoked key. */
export const usageOf = (id: string): string => `gateway:usage:{${id}}`;
