/** The calls that every generated client must support. */

export interface NewPet {
  readonly name: string;
  readonly categoryId: number;
  readonly status?: 'available' | 'pending' | 'sold';
}

interface Pet extends NewPet {
  readonly id: number;
}

/** A generated client. Each call is written as its generator requires. */
export interface Store {
  create(pet: NewPet): Promise<Pet | undefined>;
  get(id: number): Promise<Pet | undefined>;
  list(): Promise<readonly Pet[] | undefined>;
  limits(): Promise<{ readonly plan: string } | undefined>;
}

export interface Used {
  readonly created: Pet | undefined;
  readonly sold: Pet | undefined;
  readonly got: Pet | undefined;
  readonly listed: readonly Pet[] | undefined;
  readonly plan: string | undefined;
}

/** Uses every call and prints the results. */
export async function useStore(store: Store): Promise<void> {
  const created = await store.create({ name: 'Spot', categoryId: 1 });
  const sold = await store.create({ name: 'Cleo 🐕', categoryId: 1, status: 'sold' });
  const got = await store.get(created?.id ?? 0);
  const listed = await store.list();
  const used: Used = { created, sold, got, listed, plan: (await store.limits())?.plan };
  process.stdout.write(JSON.stringify(used));
}
