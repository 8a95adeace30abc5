import { z } from 'zod';
import { NewOrder, OrderMove, OrderStatus } from '../shared/order.ts';
import { readBody } from '../shared/typed-body.ts';
import { createOnce } from './create-once.ts';
import { type CoreOperation, found, pageAnswer } from './operation.ts';
import { pageOf, pathId } from './request.ts';
import { moveOrder, placeOrder, selectOrder, selectOrders } from './store/orders.ts';

const newOrder = z.compile(NewOrder);
const orderMove = z.compile(OrderMove);

export const listOrders: CoreOperation = async (call) => {
  const page = pageOf(call.query, OrderStatus);
  const entries = await call.parts.store.read(() => selectOrders({ ...page, limit: page.limit + 1 }));
  return pageAnswer(call, page.limit, entries);
};

export const createOrder: CoreOperation = async (call) => {
  const order = await readBody(newOrder, call.request, call.response, call.parts.bodyLimitBytes);
  return await createOnce(call, order, () => placeOrder(order.petId, Date.now()));
};

export const getOrder: CoreOperation = async ({ parts: { store }, params }) => {
  const id = pathId(params[0], 'orderId');
  return found('order', id, await store.read(() => selectOrder(id)));
};

export const changeOrder: CoreOperation = async ({ parts, params, request, response }) => {
  const id = pathId(params[0], 'orderId');
  const { status } = await readBody(orderMove, request, response, parts.bodyLimitBytes);
  return found('order', id, await parts.store.write(() => moveOrder(id, status)));
};
