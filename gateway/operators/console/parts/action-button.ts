import { useContext } from 'preact/hooks';
import { type Content, html } from '../html.ts';
import { Caller, idOfRefusal, ROLES, type Role, refusal } from '../rights.ts';

interface ActionButtonProps {
  readonly kind?: string;
  /** The lowest role that may use it. */
  readonly needs?: Role;
  onClick(): unknown;
  readonly children: Content;
}

/**
 * A button that changes something. Users without the right can reach it and see why, but it does nothing. It must be
 * inside the frame that has the Refusals.
 */
export function ActionButton({ kind, needs = 'operator', onClick, children }: ActionButtonProps) {
  const why = refusal(useContext(Caller), needs);
  if (why === undefined) return html`<button type="button" class=${kind} onClick=${onClick}>${children}</button>`;
  return html`<button type="button" class=${kind} aria-disabled="true" aria-describedby=${idOfRefusal(needs)} title=${why}>${children}</button>`;
}

/** Explains disabled buttons to screen readers. */
export function Refusals() {
  const caller = useContext(Caller);
  return ROLES.map((role) => html`<p hidden id=${idOfRefusal(role)}>${refusal(caller, role)}</p>`);
}
