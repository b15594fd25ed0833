import { follow, type JobEvent } from "oncekey-events";
import { useJobEvents } from "oncekey-events/react";

const following = follow<{ percent: number }>("/events/job-1", {
  onEvent: (event: JobEvent<{ percent: number }>) => void event.data.percent.toFixed(),
  headers: async ({ renew }) => ({ Authorization: renew ? "new" : "old" }),
  retries: 3,
});
following.close();
follow("/events/", {
  jobs: ["job-1", "order-42/*"],
  onResync: (reason: string, job?: string) => void [reason, job],
  onRefused: (job: string, reason: string) => void [job, reason],
});
export const refused: string | undefined = useJobEvents("/events/", { jobs: ["a"] }).refused.a;
export const last: string | null = following.last;
export const shown: number[] = useJobEvents("/events/job-1").events.map((event) => event.offset);
