/** Hooks of React around `follow`. */
import { useEffect, useRef, useState } from "react";
import { follow } from "oncekey-events";

const EMPTY = { events: [], status: "connecting", resync: null };

/**
 * Follow the job at `url` while the component is shown. Return its events in order, the status, and
 * the reason of the last resync. Options are those of `follow`; the newest handlers are called.
 * Without a `url` nothing is followed.
 */
export function useJobEvents(url, options = {}) {
  const [shown, show] = useState(EMPTY);
  const newest = useRef(options);
  newest.current = options;
  useEffect(() => {
    show(EMPTY);
    if (!url) return undefined;
    const { onEvent, onResync, onStatus, ...rest } = newest.current;
    const following = follow(url, {
      ...rest,
      onEvent: (event) => {
        show((was) => ({ ...was, events: [...was.events, event] }));
        newest.current.onEvent?.(event);
      },
      onResync: (reason) => {
        show((was) => ({ ...was, events: [], resync: reason }));
        newest.current.onResync?.(reason);
      },
      onStatus: (status, details) => {
        show((was) => ({ ...was, status }));
        newest.current.onStatus?.(status, details);
      },
    });
    return () => following.close();
  }, [url]);
  return shown;
}
