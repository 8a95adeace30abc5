/** What somebody who looks after the gateway should know of one thing that it depends on. */
export interface Finding {
  readonly about: string;
  /** A warning costs nobody anything yet; a fault does, or will at the next mishap. */
  readonly status: 'good' | 'warning' | 'fault';
  readonly found: string;
  /** What to do about it. */
  readonly advice?: string | undefined;
}

export const good = (about: string, found: string): Finding => ({ about, status: 'good', found });

export const warning = (about: string, found: string, advice: string): Finding => ({
  about,
  status: 'warning',
  found,
  advice,
});

export const fault = (about: string, found: string, advice: string): Finding => ({
  about,
  status: 'fault',
  found,
  advice,
});
