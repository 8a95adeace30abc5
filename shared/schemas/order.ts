import { z } from 'zod';
import { int64 } from './int64.ts';
import { must } from './must.ts';

export const OrderStatus = z.enum(['placed', 'approved', 'delivered', 'cancelled'], {
  error: must('be one of placed, approved, delivered, cancelled'),
});

/** The body of an internal request that orders a pet. */
export const NewOrder = z.strictObject({ petId: int64 });

/** The body of an internal request that changes an order's status. */
export const OrderMove = z.strictObject({ status: OrderStatus });

/** An order for one pet. `createdAt` is an RFC 3339 time in UTC. */
export const Order = z.strictObject({
  id: int64,
  petId: int64,
  status: OrderStatus,
  createdAt: z.iso.datetime(),
});

export type OrderStatus = z.infer<typeof OrderStatus>;
export type NewOrder = z.infer<typeof NewOrder>;
export type OrderMove = z.infer<typeof OrderMove>;
export type Order = z.infer<typeof Order>;
