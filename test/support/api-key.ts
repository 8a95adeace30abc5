/** The public part of an API key. */
export const idOf = (key: string): string => key.slice(3, 15);
