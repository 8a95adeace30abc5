/**
 * Takes one out of a list. For what comes and goes with every request such a list is kinder to memory than a Set: as its
 * members change, V8 makes a Set new tables, and each of those that are left behind keeps the next one alive, with whatever
 * was in it. Once one of them is old, all that follow grow old with it, until the whole of old space is collected.
 */
export function takeOut<T>(list: T[], one: T): void {
  // The one that came first goes first, mostly.
  if (list[0] === one) {
    list.shift();
    return;
  }
  const at = list.indexOf(one);
  if (at !== -1) list.splice(at, 1);
}
