import { z } from 'zod';
import { readBody } from '../shared/http/body.ts';
import { NewPet, PetChanges, PetStatus } from '../shared/schemas/pet.ts';
import { type CoreOperation, createOnce, found, notFound, pageAnswer, pageOf, pathId } from './operation.ts';
import { deletePet, insertPet, selectPet, selectPets, updatePet } from './store/queries.ts';

/** Compiled checks take a third of the time. */
const newPet = z.compile(NewPet);
const petChanges = z.compile(PetChanges);

export const listPets: CoreOperation = async (call) => {
  const page = pageOf(call.query, PetStatus);
  const entries = await call.deps.store.read(() => selectPets({ ...page, limit: page.limit + 1 }));
  return pageAnswer(call, page.limit, entries);
};

export const createPet: CoreOperation = async (call) => {
  const pet = await readBody(newPet, call.request, call.response, call.deps.bodyLimitBytes);
  return await createOnce(call, pet, () => insertPet(pet));
};

export const getPet: CoreOperation = async ({ deps: { store }, params }) => {
  const id = pathId(params[0], 'petId');
  return found('pet', id, await store.read(() => selectPet(id)));
};

export const changePet: CoreOperation = async ({ deps, params, request, response }) => {
  const id = pathId(params[0], 'petId');
  const changes = await readBody(petChanges, request, response, deps.bodyLimitBytes);
  return found('pet', id, await deps.store.write(() => updatePet(id, changes)));
};

export const removePet: CoreOperation = async ({ deps: { store }, params }) => {
  const id = pathId(params[0], 'petId');
  if (!(await store.write(() => deletePet(id)))) throw notFound('pet', id);
  return { status: 204 };
};
