export interface JobEvent<Data = unknown> {
  job_id: string;
  domain: string;
  stage: string;
  seq: number;
  data: Data;
  timestamp: string;
  /** The place in the log: 1 for the first event of the job. */
  offset: number;
  /** What to give as `after` to go on after this event. */
  id: string;
}

export type JobState<Data = unknown> = Omit<JobEvent<Data>, "offset" | "id">;

export type Status =
  | "connecting"
  | "live"
  | "waiting"
  | "offline"
  | "refused"
  | "failed"
  | "closed";

export interface StatusDetails {
  retryIn?: number;
  code?: number;
  tries?: number;
}

export type HeaderValues = Record<string, string>;

export interface FollowOptions<Data = unknown> {
  /** The jobs to follow on one connection, if the address names none. */
  jobs?: readonly string[] | null;
  after?: string | null;
  lastSeq?: number | null;
  state?: boolean;
  onEvent?: ((event: JobEvent<Data>) => void) | null;
  onState?: ((state: JobState<Data> | null, job?: string) => void) | null;
  onResync?: ((reason: string, job?: string) => void) | null;
  onRefused?: ((job: string, reason: string) => void) | null;
  onStatus?: ((status: Status, details: StatusDetails) => void) | null;
  until?: ((event: JobEvent<Data>) => boolean) | null;
  headers?:
    | HeaderValues
    | ((asked: { renew: boolean }) => HeaderValues | Promise<HeaderValues>)
    | null;
  credentials?: RequestCredentials;
  pause?: number;
  longestPause?: number;
  retries?: number;
  silence?: number;
}

export interface Following {
  /** The id of the last event that was handed over, for `after`. */
  readonly last: string | null;
  /** Stop following. No handler gets another event. */
  close(): void;
}

/** Follow the job that the gateway serves at `url`, or several `jobs` there, until `close()`. */
export function follow<Data = unknown>(
  url: string | URL,
  options?: FollowOptions<Data>,
): Following;
