// Follow several jobs with the packed client until each has its last event, and print what came.
import { writeSync } from "node:fs";
import { follow } from "oncekey-events";

const [url, last, ...jobs] = process.argv.slice(2);
const seen = {};

follow(url, {
  jobs,
  pause: 1,
  longestPause: 20,
  onEvent: (event) => (seen[event.job_id] ??= []).push(event.offset),
  onResync: (reason, job) => (seen[job] = [reason]),
  onStatus: (status) => {
    if (status === "closed") writeSync(1, JSON.stringify(seen));
  },
  until: (event) => event.offset === Number(last),
});
