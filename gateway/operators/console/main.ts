import { render } from 'preact';
import { App } from './app.ts';
import { html } from './html.ts';
import { followLinks } from './router.ts';

followLinks();
render(html`<${App} />`, document.querySelector('#app') as Element);
