/** Hooks of React around `follow`. */
import { useEffect, useRef, useState } from "react";
import { follow } from "oncekey-events";

const EMPTY = { events: [], status: "connecting", resync: null, refused: {} };

/**
 * Follow the job at `url`, or several `jobs` there, while the component is shown. Return the events,
 * those of each job in order, the status, the reason of the last resync, and of each job that is not
 * followed why. Options are those of `follow`; the newest handlers are called. Without a `url`, and
 * with an empty list of jobs, nothing is followed.
 */
export function useJobEvents(url, options = {}) {
  const [shown, show] = useState(EMPTY);
  const newest = useRef(options);
  newest.current = options;
  const jobs = options.jobs && JSON.stringify(options.jobs);
  useEffect(() => {
    show(EMPTY);
    if (!url || jobs === "[]") return undefined;
    const { onEvent, onResync, onRefused, onStatus, ...rest } = newest.current;
    const following = follow(url, {
      ...rest,
      onEvent: (event) => {
        show((was) => ({ ...was, events: [...was.events, event] }));
        newest.current.onEvent?.(event);
      },
      onResync: (reason, job) => {
        const kept = (event) => jobs && event.job_id !== job;
        show((was) => ({ ...was, events: was.events.filter(kept), resync: reason }));
        newest.current.onResync?.(reason, job);
      },
      onRefused: (job, reason) => {
        show((was) => ({ ...was, refused: { ...was.refused, [job]: reason } }));
        newest.current.onRefused?.(job, reason);
      },
      onStatus: (status, details) => {
        show((was) => ({ ...was, status }));
        newest.current.onStatus?.(status, details);
      },
    });
    return () => following.close();
  }, [url, jobs]);
  return shown;
}
