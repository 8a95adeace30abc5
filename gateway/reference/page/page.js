/** Shows the operations of the API, with a panel to try each one that does not have it switched off. */

const SAMPLE_ORIGIN = 'http://127.0.0.1:8080';

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

/** Only the key and the operations. All else that Swagger UI shows is said above, once. */
const ourLayout = ({ React: { createElement } }) => ({
  components: {
    OurLayout({ getComponent }) {
      const part = (name) => createElement(getComponent(name, true), { key: name });
      return createElement('div', { className: 'swagger-ui' }, [
        createElement(getComponent('SvgAssets'), { key: 'SvgAssets' }),
        createElement('div', { key: 'key', className: 'key' }, part('AuthorizeBtnContainer')),
        createElement('div', { key: 'operations', role: 'presentation' }, part('operations')),
      ]);
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

const isError = (status) => Number(status) >= 400;

/** The errors of most operations, which the page lists once. */
function commonErrors(paths) {
  const operations = paths.toList().flatMap((path) => path.toList());
  const statuses = operations.flatMap((operation) => operation.get('responses').keySeq());
  return statuses.countBy((status) => status).filter((count, status) => isError(status) && count * 2 > operations.size);
}

const ownResponses = ({ React: { createElement } }) => ({
  wrapComponents: {
    responses: (Responses) => (props) => {
      const { path, method, specSelectors, responses } = props;
      const paths = specSelectors.specJson().get('paths');
      const common = commonErrors(paths);
      const own = responses
        .filter((_, status) => !common.has(status))
        // The body of an error is shown once, above.
        .map((response, status) => (isError(status) ? response.delete('content').delete('headers') : response));
      return createElement(
        'div',
        null,
        createElement(Samples, { createElement, operation: paths.getIn([path, method]) }),
        createElement(Responses, { ...props, responses: own }),
        createElement('p', { className: 'others' }, 'Others: ', createElement('a', { href: '#errors' }, 'Errors')),
      );
    },
  },
});

/** The first one is open; without a script of their own, since a group of details shares a name. */
const Samples = ({ createElement, operation }) => {
  const name = `sample-${operation.get('operationId')}`;
  const folded = ({ label, source }, at) =>
    createElement(
      'details',
      { key: label, name, open: at === 0 },
      createElement('summary', null, label),
      createElement('pre', null, createElement('code', null, source.replaceAll(SAMPLE_ORIGIN, location.origin))),
    );
  return createElement('div', { className: 'samples' }, operation.get('x-codeSamples').toJS().map(folded));
};

/** The command for what was sent is there to be copied and passed on: without the key. */
const maskedKey = ({ React: { createElement } }) => ({
  wrapComponents: {
    curl:
      (Curl) =>
      ({ request, ...props }) => {
        const masked = request.update('headers', (headers) =>
          headers?.map((value, name) => (/^authorization$/i.test(name) ? 'Bearer $KEY' : value)),
        );
        return createElement(Curl, { ...props, request: masked });
      },
  },
});

/** A link inside a button is none for a screen reader. The address bar follows what is opened. */
const plainNames = ({ React: { createElement } }) => ({
  wrapComponents: {
    DeepLink:
      () =>
      ({ text }) =>
        createElement('span', null, text),
  },
});

/** Fields, lists and tables that Swagger UI leaves without a name. */
function nameControls(root) {
  for (const table of root.querySelectorAll('[role="region"]:not([aria-label])'))
    table.setAttribute('aria-label', table.id);
  for (const control of root.querySelectorAll(
    'select:not([aria-label]), textarea:not([aria-label]), input:not([aria-label])',
  )) {
    const row = control.closest('[data-param-name]');
    const name = row?.getAttribute('data-param-name') ?? (control.closest('.auth-container') ? 'API key' : undefined);
    control.setAttribute(
      'aria-label',
      name ?? (control.closest('.opblock-section-request-body') ? 'Request body' : 'Example'),
    );
  }
}

const dark = matchMedia('(prefers-color-scheme: dark)');
const followColourScheme = () => document.documentElement.classList.toggle('dark-mode', dark.matches);
dark.addEventListener('change', followColourScheme);
followColourScheme();

for (const place of document.querySelectorAll('[data-origin]')) place.textContent = location.origin;

const reference = document.querySelector('#reference');
new MutationObserver(() => nameControls(reference)).observe(reference, { childList: true, subtree: true });

window.SwaggerUIBundle({
  url: document.querySelector('#description').getAttribute('href'),
  domNode: reference,
  deepLinking: true,
  displayRequestDuration: true,
  layout: 'OurLayout',
  defaultModelsExpandDepth: -1,
  syntaxHighlight: { activated: false },
  plugins: [panelsPerOperation, ourLayout, foldedHeaders, ownResponses, maskedKey, plainNames],
  // Nothing leaves this origin: no badge of an outside validator.
  validatorUrl: null,
});
