import { html } from '../html.ts';

export const NowherePage = () => html`
  <h1>There is no such page</h1>
  <p><a href="/">Go to the overview</a></p>
`;
