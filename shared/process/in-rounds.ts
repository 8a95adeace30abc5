/**
 * Makes calls share runs of `act`: one run is under way at a time, and all calls during it share the next one, which
 * begins when it ends. Each call is therefore served by a run that begins after the call.
 */
export function inRounds<T>(act: () => Promise<T>): () => Promise<T> {
  let underWay: Promise<unknown> = Promise.resolve();
  let next: Promise<T> | undefined;
  return () => {
    next ??= underWay.then(() => {
      const run = act();
      underWay = run.catch(() => undefined);
      next = undefined;
      return run;
    });
    return next;
  };
}
