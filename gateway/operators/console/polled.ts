import { useCallback, useEffect, useRef, useState } from 'preact/hooks';

/** What a page shows of the gateway: the last answer, and any fault since then. */
export interface Polled<T> {
  readonly value: T | undefined;
  readonly fault: Error | undefined;
  /** Polls at once. */
  refresh(): Promise<void>;
}

/**
 * Polls while the page is visible. Each call follows the previous answer.
 * @param name identifies what is polled: a new name clears the value
 * @param ask may throw
 * @param cause polls at once when it changes
 */
export function usePolled<T>(name: string, everyMs: number, ask: () => Promise<T>, cause?: string): Polled<T> {
  const [state, setState] = useState<{ name: string; value?: T; fault?: Error | undefined }>({ name });
  const latest = useRef(ask);
  latest.current = ask;
  const current = useRef(name);
  current.current = name;

  const refresh = useCallback(async () => {
    const asked = current.current;
    try {
      const value = await latest.current();
      if (current.current === asked) setState({ name: asked, value, fault: undefined });
    } catch (fault) {
      if (current.current === asked)
        setState((old) =>
          old.name === asked ? { ...old, fault: fault as Error } : { name: asked, fault: fault as Error },
        );
    }
  }, []);

  useEffect(() => {
    let isOver = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const turn = async () => {
      if (!document.hidden) await refresh();
      if (!isOver) timer = setTimeout(turn, everyMs);
    };
    void turn();
    const seen = () => void (!document.hidden && refresh());
    document.addEventListener('visibilitychange', seen);
    return () => {
      isOver = true;
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', seen);
    };
  }, [name, everyMs, cause, refresh]);

  const isCurrent = state.name === name;
  return { value: isCurrent ? state.value : undefined, fault: isCurrent ? state.fault : undefined, refresh };
}
