// Watch a stream with a client of npm until its last event, and print the offsets that came.
import { writeSync } from "node:fs";

const [client, url, last] = process.argv.slice(2);
const seen = [];

function take(text) {
  seen.push(JSON.parse(text).offset);
  if (seen.at(-1) === Number(last)) {
    writeSync(1, JSON.stringify(seen));
    process.exit(0);
  }
}

if (client === "eventsource") {
  const { EventSource } = await import("eventsource");
  setInterval(() => {}, 1000); // its pause does not keep a process alive
  new EventSource(url).onmessage = (message) => take(message.data);
} else if (client === "oncekey-events") {
  const { follow } = await import(process.env.ONCEKEY_EVENTS);
  follow(url, { pause: 1, longestPause: 20, onEvent: (event) => take(JSON.stringify(event)) });
} else {
  // It is made for pages, and asks for what only these have.
  globalThis.window = globalThis;
  globalThis.document = { hidden: false, addEventListener() {}, removeEventListener() {} };
  const { fetchEventSource } = await import("@microsoft/fetch-event-source");
  await fetchEventSource(url, {
    onmessage: (message) => message.data && take(message.data),
    onclose: () => {
      throw new Error("cut off");
    },
    onerror: () => 1,
  });
}
