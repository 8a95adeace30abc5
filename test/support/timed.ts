/**
 * For a test that holds a time against its bound, and for no other. What else the machine does may cost it a try, and the
 * end of the run names those that it did; what the product does wrong costs it all three.
 */
export const TIMED = { retry: 2 } as const;
