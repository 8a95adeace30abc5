import { useContext } from 'preact/hooks';
import { type Content, html } from '../html.ts';
import { Caller, idOfRefusal, ROLES, type Role, refusal } from '../rights.ts';

interface ActionButtonProps {
  readonly kind?: string;
  /** The lowest role that may do it. */
  readonly needs?: Role;
  onClick(): unknown;
  readonly children: Content;
}

/**
 * A button that changes something. Who may not do it can reach it and is told why, but it does nothing. Must be inside
 * of the frame that has the Refusals.
 */
export function ActionButton({ kind, needs = 'operator', onClick, children }: ActionButtonProps) {
  const why = refusal(useContext(Caller), needs);
  if (why === undefined) return html`<button type="button" class=${kind} onClick=${onClick}>${children}</button>`;
  return html`<button type="button" class=${kind} aria-disabled="true" aria-describedby=${idOfRefusal(needs)} title=${why}>${children}</button>`;
}

/** The reasons, for screen readers. */
export function Refusals() {
  const caller = useContext(Caller);
  return ROLES.map((role) => html`<p hidden id=${idOfRefusal(role)}>${refusal(caller, role)}</p>`);
}
