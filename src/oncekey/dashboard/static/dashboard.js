// Keeps pages up to date. Every page works without it.
"use strict";

(() => {
  const SAY_EVERY = 30000;

  // "/" goes to the search field, as in other tools.
  document.addEventListener("keydown", (event) => {
    const field = document.querySelector("[data-search]");
    const typing = event.target.closest("input, textarea, select");
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || typing) return;
    event.preventDefault();
    if (field) field.focus();
    else location.href = document.querySelector('.nav a[href$="/records"]').href;
  });

  // Times are written in UTC; here they become those of the person who looks.
  const two = (number) => String(number).padStart(2, "0");
  const zone = (at) =>
    new Intl.DateTimeFormat(undefined, { timeZoneName: "short" })
      .formatToParts(at)
      .find((part) => part.type === "timeZoneName").value;
  const localize = (root) => {
    for (const one of root.querySelectorAll("time[datetime]")) {
      const at = new Date(one.dateTime);
      const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
      const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
      const words = `${day} ${clock} ${zone(at)}`;
      if (!("moment" in one.dataset)) one.title = words;
      else if (one.textContent !== words) {
        one.title = one.textContent;
        one.textContent = words;
      }
    }
  };
  localize(document);
  const foot = document.querySelector("[data-zone]");
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (foot && own !== "UTC") {
    foot.textContent = `Times are those of ${own}; point at one to see it in UTC.`;
  }

  const holder = document.querySelector("[data-live-every]");
  if (!holder) return;

  const every = Number(holder.dataset.liveEvery);
  const state = document.querySelector("[data-live-state]");
  const button = document.querySelector("[data-live-switch]");
  const said = document.querySelector("[data-live-said]");
  // The page comes from our own server, which has escaped every value in it.
  const rules = { createHTML: (text) => text };
  const policy = window.trustedTypes ? trustedTypes.createPolicy("oncekey", rules) : rules;
  let paused = false;
  let saidAt = 0;
  let saidWords = "";

  const place = () => document.querySelector("[data-live]");

  // A list in which somebody has ticked or chosen something stays as it is.
  const busy = () => {
    const field = document.activeElement?.closest("[data-live] :is(input, select, textarea)");
    return Boolean(field || place().querySelector("input:checked"));
  };

  const show = (words, mode) => {
    if (state.textContent !== words) state.textContent = words;
    holder.dataset.mode = mode;
  };

  // What is shown stays, but it is no longer true: that is said beside it, with its moment.
  const lose = (words) => {
    const moment = place().querySelector("[data-live-moment]");
    place().classList.add("is-old");
    show(moment ? `${words}; shown as of ${moment.textContent}` : words, "lost");
  };

  // The whole part is replaced at once, so that all of it is of one moment.
  const put = (text) => {
    const page = new DOMParser().parseFromString(policy.createHTML(text), "text/html");
    const fresh = page.querySelector("[data-live]");
    const old = place();
    if (!fresh) return location.reload();
    const at = old.contains(document.activeElement) ? document.activeElement : null;
    localize(fresh);
    old.replaceWith(fresh);
    const same = (one) => one.id === at.id && one.getAttribute("href") === at.getAttribute("href");
    if (at) [...fresh.querySelectorAll(at.tagName)].find(same)?.focus({ preventScroll: true });
    // Who listens is told now and then, and only what is new.
    const words = fresh.querySelector("[data-said]")?.dataset.said || "";
    if (words && words !== saidWords && Date.now() - saidAt > SAY_EVERY) {
      saidWords = words;
      saidAt = Date.now();
      said.textContent = words;
    }
  };

  const ask = async () => {
    if (!paused && !document.hidden && busy()) show("Waits while you choose", "paused");
    else if (!paused && !document.hidden) {
      try {
        const answer = await fetch(location.href, { headers: { accept: "text/html" } });
        const text = await answer.text();
        if (paused) show("Paused", "paused");
        else if (answer.ok && !busy()) {
          put(text);
          show("Live", "live");
        } else if (answer.status === 401 || answer.status === 403) {
          location.reload();
          return;
        } else if (!answer.ok) {
          lose("The store does not answer");
        }
      } catch {
        lose("The dashboard does not answer");
      }
    }
    setTimeout(ask, every);
  };

  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Go on" : "Pause";
    show(paused ? "Paused" : "Live", paused ? "paused" : "live");
  });
  setTimeout(ask, every);
})();
