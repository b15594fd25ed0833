import { follow } from "oncekey-events";

follow("/events/job-1", { onEvents: () => undefined });
