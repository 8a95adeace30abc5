/**
 * Loads the console. If loading is interrupted, for example by a restart of the gateway or a change of network, the
 * browser does not try the module again, so the page is reloaded.
 */

import('./app.ts').catch(() => {
  const app = document.querySelector('#app');
  if (app !== null) app.textContent = 'The console could not be loaded. Trying again …';
  setTimeout(() => location.reload(), 1_000);
});
