import { HttpError } from '../shared/errors.ts';
import { NewPet, PetStatus } from '../shared/pet.ts';
import { readBody } from '../shared/typed-body.ts';
import { type CoreOperation, pageAnswer } from './operation.ts';
import { pageOf, pathId } from './request.ts';

export const listPets: CoreOperation = async (call) => {
  const page = pageOf(call.query, PetStatus);
  return pageAnswer(call, page.limit, await call.parts.store.listPets({ ...page, limit: page.limit + 1 }));
};

export const createPet: CoreOperation = async ({ parts: { store, bodyLimitBytes }, request, response }) => {
  const pet = await readBody(NewPet, request, response, bodyLimitBytes);
  return { status: 201, body: await store.createPet(pet) };
};

export const getPet: CoreOperation = async ({ parts: { store }, params }) => {
  const id = pathId(params[0], 'petId');
  const pet = await store.getPet(id);
  if (pet === undefined) throw new HttpError('not_found', `There is no pet ${id}.`);
  return { status: 200, body: pet };
};
