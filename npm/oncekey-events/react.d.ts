import type { FollowOptions, JobEvent, Status } from "oncekey-events";

export interface Shown<Data = unknown> {
  events: JobEvent<Data>[];
  status: Status;
  /** The reason of the last resync, or null. */
  resync: string | null;
}

/** Follow the job at `url` while the component is shown. */
export function useJobEvents<Data = unknown>(
  url: string | null | undefined,
  options?: FollowOptions<Data>,
): Shown<Data>;
