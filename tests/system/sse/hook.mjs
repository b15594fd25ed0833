// Render the hook of the packed client until it has the last event, and print what it showed.
import { writeSync } from "node:fs";
import { createElement } from "react";
import { create } from "react-test-renderer";
import { useJobEvents } from "oncekey-events/react";

const [url, last] = process.argv.slice(2);
console.error = () => {}; // updates come from a network, and not from a test

function Page() {
  const { events, resync } = useJobEvents(url, { pause: 1, longestPause: 20 });
  const offsets = events.map((event) => event.offset);
  if (offsets.at(-1) === Number(last)) {
    writeSync(1, JSON.stringify({ offsets, resync }));
    process.exit(0);
  }
  return null;
}

create(createElement(Page));
