import { html } from '../html.ts';
import { addressOfRequests } from '../router.ts';
import { Card } from './pieces.ts';
import { RequestList } from './request-list.ts';

const SHOWN = 10;

/** Lists the last requests of a key that the gateways remember. */
export function KeyRequests({ id }: { id: string }) {
  const asked = { keyId: id, limit: String(SHOWN) };
  const all = html`<a href=${addressOfRequests({ keyId: id })}>All its requests</a>`;
  return html`
    <${Card} title="Last requests" id="requests-title" actions=${all}>
      <${RequestList} label="Last requests" asked=${asked} hasKeys=${false} empty="There is no remembered request of this key." />
    <//>
  `;
}
