import { z } from 'zod';

export const time = z.iso.datetime();
export const count = z.int();
export const listOf = <S extends z.ZodType>(entry: S) => z.array(entry).readonly();
