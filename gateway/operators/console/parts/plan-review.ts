import { useEffect, useState } from 'preact/hooks';
import type { TrialAnswer } from '../../api/answers.ts';
import { callApi } from '../api.ts';
import { html } from '../html.ts';
import type { PlanName } from '../plan-fields.ts';
import { readTrial, type Trial } from '../whole-answers.ts';
import { counted, number, percent, valueInWords } from '../words.ts';

/** Shows what a change of a plan does: the difference, and its effect on the last hour. */

export interface Difference {
  readonly field: string;
  readonly from?: string | undefined;
  readonly to?: string | undefined;
}

/** Shows each field on one line, with its current and its new value. */
export const Differences = ({ changes }: { changes: readonly Difference[] }) =>
  changes.length === 0
    ? html`<p>There is nothing to change: these values are already in force.</p>`
    : html`<ul class="differences">
        ${changes.map(({ field, from, to }) => html`<li>${field}: <del>${valueInWords(from)}</del> → <ins>${valueInWords(to)}</ins></li>`)}
      </ul>`;

/** Each page checks 100 keys. */
const MOST_PAGES = 50;
const SHOWN = 5;

interface WhatIfProps {
  readonly plan: PlanName;
  /** The new limits. */
  readonly limits: Readonly<Record<string, unknown>>;
}

/** Shows what new limits would have refused, by the counts of the last hour. */
export function WhatIf({ plan, limits }: WhatIfProps) {
  const [trial, setTrial] = useState<Trial | Error | undefined>();
  const isNone = Object.keys(limits).length === 0;
  useEffect(() => {
    if (isNone) return;
    let isOver = false;
    const ask = async (path: string) =>
      (await callApi<TrialAnswer>('POST', path, { body: limits, isTrial: true })).body;
    readTrial(ask, plan, MOST_PAGES).then(
      (found) => !isOver && setTrial(found),
      (fault: Error) => !isOver && setTrial(fault),
    );
    return () => {
      isOver = true;
    };
  }, []);
  if (isNone) return undefined;
  return html`<div class="what-if" role="status"><h3>In the last hour</h3>${inWords(trial)}</div>`;
}

const LEAST = html`<p class="note">This is the least: requests are counted by minute, so bursts within a minute are not seen. Shadow mode finds the exact number.</p>`;

function inWords(trial: Trial | Error | undefined) {
  if (trial === undefined) return html`<p>Trying the limits on the requests of the last hour …</p>`;
  if (trial instanceof Error) return html`<p>These limits could not be tried: ${trial.message}</p>`;
  const { keys, requests, affected, isWhole } = trial;
  const refused = affected.reduce((sum, { wouldRefuse }) => sum + wouldRefuse, 0);
  const scope = isWhole ? '' : ` Only the first ${number(MOST_PAGES * 100)} keys were checked.`;
  if (requests === 0) return html`<p>No key of this plan had a request.${scope}</p>`;
  if (refused === 0)
    return html`
      <p>As far as can be known, these limits would have refused none of ${counted(requests, 'request')} by ${counted(keys, 'key')}.${scope}</p>
      ${LEAST}
    `;
  return html`
    <p>
      These limits would have refused at least <b>${number(refused)}</b>${` of ${counted(requests, 'request')} (${percent(refused, requests)}), of `}
      at least <b>${number(affected.length)}</b>${` of ${counted(keys, 'key')}.${scope}`}
    </p>
    <ul class="plain">
      ${affected
        .slice(0, SHOWN)
        .map(
          ({ id, name, requests, refused, wouldRefuse }) =>
            html`<li key=${id} class="wordy"><b>${name}</b>: ${number(wouldRefuse)} of ${number(requests)}, instead of ${number(refused)}</li>`,
        )}
      ${affected.length > SHOWN && html`<li class="note">and ${counted(affected.length - SHOWN, 'more key', 'more keys')}</li>`}
    </ul>
    ${LEAST}
  `;
}
