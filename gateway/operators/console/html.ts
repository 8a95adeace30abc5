import htm from 'htm';
import { type ComponentChildren, h, type VNode } from 'preact';

type Template = (strings: TemplateStringsArray, ...values: unknown[]) => VNode;

/** htm's types describe a CommonJS module; browsers get its ES module. */
const { bind } = htm as unknown as { bind(create: typeof h): Template };

/** Renders templates as markup. Values are set as text and properties, so that typed text never becomes markup. */
export const html: Template = bind.call(htm, h);

export type Content = ComponentChildren;
