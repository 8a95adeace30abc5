/**
 * Loads the console. A browser gives up a module for good when one file is interrupted, for example by a restart of the
 * gateway or a change of the network; then the page is loaded again.
 */

const AGAIN_MS = 1_000;

import('./main.ts').catch(() => {
  const app = document.querySelector('#app');
  if (app !== null) app.textContent = 'The console could not be loaded. Trying again …';
  setTimeout(() => location.reload(), AGAIN_MS);
});
