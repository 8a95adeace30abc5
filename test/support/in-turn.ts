/** Runs a task for each of `items`, `width` at a time. Results are in the order of the items. */
export async function inTurn<Item, Result>(
  items: readonly Item[],
  width: number,
  task: (item: Item) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = [];
  const waiting = [...items.entries()];
  const work = async () => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) results[next[0]] = await task(next[1]);
  };
  await Promise.all(Array.from({ length: width }, work));
  return results;
}
