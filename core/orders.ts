import { OrderStatus } from '../shared/order.ts';
import { type CoreOperation, pageAnswer } from './operation.ts';
import { pageOf } from './request.ts';

export const listOrders: CoreOperation = async (call) => {
  const page = pageOf(call.query, OrderStatus);
  return pageAnswer(call, page.limit, await call.parts.store.listOrders({ ...page, limit: page.limit + 1 }));
};
