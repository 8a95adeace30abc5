import { useEffect, useRef, useState } from 'preact/hooks';
import type { FoundAnswer, RequestsAnswer } from '../../api/answers.ts';
import { get } from '../api.ts';
import { html } from '../html.ts';
import { addressOf, addressOfKey, addressOfRequests, navigate } from '../router.ts';
import { searchText } from '../search-text.ts';

/** The maximum length of a text for the search of requests. */
const LONGEST_TEXT = 200;

/** Finds a key or a request from any page by what people have at hand. `/` moves the focus here. */
export function Finder() {
  const input = useRef<HTMLInputElement>(null);
  const [fault, setFault] = useState('');

  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.key !== '/' || event.ctrlKey || event.metaKey || isTyping(event.target)) return;
      event.preventDefault();
      input.current?.focus();
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, []);

  async function submit(event: SubmitEvent) {
    event.preventDefault();
    const { text } = searchText(input.current?.value ?? '');
    if (input.current !== null) input.current.value = text;
    if (text === '') return;
    setFault('');
    try {
      navigate(await addressFor(text));
    } catch (thrown) {
      setFault((thrown as Error).message);
    }
  }

  // A pasted key must not stay on the screen.
  function drop(event: Event) {
    const field = event.target as HTMLInputElement;
    const { text } = searchText(field.value);
    if (text !== field.value.trim()) field.value = text;
  }

  return html`
    <form class="finder" role="search" onSubmit=${submit}>
      <label class="unseen" for="find">Find a key by name, id or whole key, or a request by its id</label>
      <input
        id="find"
        ref=${input}
        type="search"
        autocomplete="off"
        spellcheck=${false}
        placeholder="Find by name, id, key or request id"
        aria-describedby="find-fault"
        onInput=${drop}
      />
      <button type="submit">Find</button>
      <span id="find-fault" class="fault" role="alert">${fault}</span>
    </form>
  `;
}

/** Opens a single key directly, and otherwise the list. A request without a valid key has no key to open. */
async function addressFor(text: string): Promise<string> {
  const { body } = await get<FoundAnswer>(`/keys/find?text=${encodeURIComponent(text)}`);
  const [only, ...others] = body.keys;
  if (only?.foundBy === 'request' || (only === undefined && body.next === undefined && (await isOfRequest(text))))
    return addressOfRequests({ q: text });
  if (only !== undefined && others.length === 0 && body.next === undefined) return addressOfKey(only.id);
  return `${addressOf('keys')}?find=${encodeURIComponent(text)}`;
}

async function isOfRequest(text: string): Promise<boolean> {
  if (text.length > LONGEST_TEXT) return false;
  const { body } = await get<RequestsAnswer>(`/requests?limit=1&q=${encodeURIComponent(text)}`);
  return body.requests.length > 0;
}

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.matches('input, select, textarea') || target.closest('dialog') !== null);
