import { useEffect, useState } from 'preact/hooks';
import { html } from './html.ts';

/** Messages about finished actions, which disappear by themselves. */

const SHOWN_MS = 6_000;

let show: ((text: string) => void) | undefined;

export const tell = (text: string): void => show?.(text);

export function Toasts() {
  const [told, setTold] = useState<{ text: string } | undefined>();
  useEffect(() => {
    show = (text) => setTold({ text });
    return () => {
      show = undefined;
    };
  }, []);
  useEffect(() => {
    if (told === undefined) return;
    const timer = setTimeout(() => setTold(undefined), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [told]);
  return html`<p class="toast" role="status">${told?.text}</p>`;
}
