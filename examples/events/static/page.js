// The page was rendered with what had happened; from there on it follows.

const at = (id) => document.getElementById(id);
const { events, client, after } = at("job").dataset;
const { follow } = await import(client);

const FINAL = 51;
let following = null;
let last = after;
let visits = 0;

function show(event) {
  last = event.id;
  const row = at("row").content.cloneNode(true).firstElementChild;
  row.dataset.id = event.id;
  row.querySelector(".offset").textContent = event.offset;
  row.querySelector(".stage").textContent = `${event.stage} ${event.seq}`;
  row.querySelector(".text").textContent = event.data.text;
  at("log").append(row);
  const stage = at("stages").querySelector(`[data-stage="${CSS.escape(event.stage)}"]`);
  if (stage) count(stage, Number(stage.dataset.done) + 1);
  tally();
}

function count(stage, done) {
  stage.dataset.done = done;
  const whole = done === Number(stage.dataset.total);
  stage.dataset.state = whole ? "done" : done > 0 ? "running" : "waiting";
  stage.querySelector(".done").textContent = done;
}

function tally() {
  const shown = at("log").children.length;
  const bar = at("progress");
  bar.value = shown;
  at("percent").textContent = `${Math.round((100 * shown) / bar.max)} %`;
  const offsets = [...at("log").querySelectorAll(".offset")].map((one) => Number(one.textContent));
  const sound = offsets.every((offset, index) => offset === offsets[0] + index);
  at("tally").textContent = `${shown} of ${bar.max}, ${sound ? "each once, in order" : "NOT SOUND"}`;
  at("log").scrollTop = at("log").scrollHeight;
}

function forget(reason) {
  last = "";
  at("log").replaceChildren();
  for (const stage of at("stages").children) count(stage, 0);
  tally();
  at("notice").textContent = `The log is not the one that was shown (${reason}). This is what is left.`;
  at("notice").hidden = false;
}

const WORDS = {
  connecting: () => "Connecting",
  live: () => "Live",
  waiting: ({ retryIn }) => `Next try in ${Math.max(1, Math.round(retryIn / 1000))} s`,
  offline: () => "Offline",
  refused: ({ code }) => `Refused (${code})`,
  closed: () => "Cut off",
};

function say(status, details) {
  if (status === "live") visits += 1;
  const complete = status === "closed" && finished();
  at("status").dataset.status = complete ? "complete" : status;
  at("status").dataset.visits = visits;
  at("status").textContent = complete ? "Complete" : WORDS[status](details);
  at("cut").textContent = status === "closed" || status === "refused" ? "Come back" : "Cut it off";
  at("cut").hidden = complete;
}

const finished = () => at("progress").value === at("progress").max;

function begin() {
  following = follow(events, {
    after: last || null,
    onEvent: show,
    onResync: forget,
    onStatus: say,
    until: (event) => event.seq === FINAL,
  });
}

at("cut").addEventListener("click", () => {
  if (at("status").dataset.status === "closed" || at("status").dataset.status === "refused") begin();
  else following.close();
});

tally();
if (finished()) say("closed");
else begin();
