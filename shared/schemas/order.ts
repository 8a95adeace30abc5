import { z } from 'zod';
import { id, int64 } from './int64.ts';
import { must } from './must.ts';

export const OrderStatus = z
  .enum(['placed', 'approved', 'delivered', 'cancelled'], {
    error: must('be one of placed, approved, delivered, cancelled'),
  })
  .describe('The progress of an order.');

/** The body of an internal request that orders a pet. */
export const NewOrder = z.strictObject({ petId: int64 });

/** The body of an internal request that changes an order's status. */
export const OrderMove = z.strictObject({ status: OrderStatus });

/** An order as the store returns it. `createdAt` is an RFC 3339 time. */
export const Order = z
  .strictObject({
    id,
    petId: int64.describe('The ordered pet.'),
    status: OrderStatus,
    createdAt: z.iso.datetime().describe('When it was placed, in UTC.'),
  })
  .describe('An order for one pet.');

export type OrderStatus = z.infer<typeof OrderStatus>;
export type NewOrder = z.infer<typeof NewOrder>;
export type OrderMove = z.infer<typeof OrderMove>;
export type Order = z.infer<typeof Order>;
