import type { FollowOptions, JobEvent, Status } from "oncekey-events";

export interface Shown<Data = unknown> {
  events: JobEvent<Data>[];
  status: Status;
  /** The reason of the last resync, or null. */
  resync: string | null;
  /** The reasons why some of several jobs are not followed. */
  refused: Record<string, string>;
}

/** Follow the job at `url`, or several `jobs` there, while the component is shown. */
export function useJobEvents<Data = unknown>(
  url: string | null | undefined,
  options?: FollowOptions<Data>,
): Shown<Data>;
