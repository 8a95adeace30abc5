/** Shows the description of the API, with a panel to try each operation that does not have it switched off. */

const operationOf = (state, path, method) => state.getIn(['json', 'paths', path, method]);

const panelsPerOperation = () => ({
  statePlugins: {
    spec: {
      wrapSelectors: {
        allowTryItOutFor: () => (state, path, method) => operationOf(state, path, method).get('x-try-it-out') !== false,
      },
    },
  },
});

/** Every answer has the same six headers: folded away, they do not hide the rest. The panel's own answer shows its headers. */
const foldedHeaders = ({ React: { createElement } }) => ({
  wrapComponents: {
    headers: (Headers) => (props) =>
      createElement('details', null, createElement('summary', null, 'Headers'), createElement(Headers, props)),
  },
});

const dark = matchMedia('(prefers-color-scheme: dark)');
const followColourScheme = () => document.documentElement.classList.toggle('dark-mode', dark.matches);
dark.addEventListener('change', followColourScheme);
followColourScheme();

window.SwaggerUIBundle({
  url: document.querySelector('#description').getAttribute('href'),
  dom_id: '#reference',
  deepLinking: true,
  displayRequestDuration: true,
  plugins: [panelsPerOperation, foldedHeaders],
  // Nothing leaves this origin: no badge of an outside validator.
  validatorUrl: null,
});
