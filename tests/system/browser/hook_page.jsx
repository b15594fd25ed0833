// A page whose component follows what the test says, and shows what the hook returns.
import { StrictMode, useState } from "react";
import { createRoot } from "react-dom/client";
import { useJobEvents } from "oncekey-events/react";

function Events({ url, jobs, options }) {
  const shown = useJobEvents(url, { pause: 1, longestPause: 20, ...options, jobs });
  window.shown = shown;
  return <output data-status={shown.status}>{shown.events.length}</output>;
}

function Page() {
  const [wanted, want] = useState(null);
  window.want = want;
  return wanted && <Events {...wanted} />;
}

const place = document.body.appendChild(document.createElement("div"));
createRoot(place).render(<StrictMode><Page /></StrictMode>);
