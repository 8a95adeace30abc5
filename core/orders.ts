import { z } from 'zod';
import { readBody } from '../shared/http/body.ts';
import { NewOrder, OrderMove, OrderStatus } from '../shared/schemas/order.ts';
import { type CoreOperation, createOnce, found, pageAnswer, pageOf, pathId } from './operation.ts';
import { moveOrder, placeOrder, selectOrder, selectOrders } from './store/queries.ts';

const newOrder = z.compile(NewOrder);
const orderMove = z.compile(OrderMove);

export const listOrders: CoreOperation = async (call) => {
  const page = pageOf(call.query, OrderStatus);
  const entries = await call.deps.store.read(() => selectOrders({ ...page, limit: page.limit + 1 }));
  return pageAnswer(call, page.limit, entries);
};

export const createOrder: CoreOperation = async (call) => {
  const order = await readBody(newOrder, call.request, call.response, call.deps.bodyLimitBytes);
  return await createOnce(call, order, () => placeOrder(order.petId, Date.now()));
};

export const getOrder: CoreOperation = async ({ deps: { store }, params }) => {
  const id = pathId(params[0], 'orderId');
  return found('order', id, await store.read(() => selectOrder(id)));
};

export const changeOrder: CoreOperation = async ({ deps, params, request, response }) => {
  const id = pathId(params[0], 'orderId');
  const { status } = await readBody(orderMove, request, response, deps.bodyLimitBytes);
  return found('order', id, await deps.store.write(() => moveOrder(id, status)));
};
