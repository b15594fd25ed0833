// Keeps the numbers of the overview alive. Every page works without it.
"use strict";

(() => {
  const EVERY = 2000;
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

  const place = document.querySelector("[data-live]");
  if (!place) return;

  const state = document.querySelector("[data-live-state]");
  const button = document.querySelector("[data-live-switch]");
  const said = document.querySelector("[data-live-said]");
  const holder = state.parentElement;
  let paused = false;
  let saidAt = 0;
  let saidWords = "";

  const show = (words, mode) => {
    if (state.textContent !== words) state.textContent = words;
    holder.dataset.mode = mode;
  };

  const put = (figures) => {
    for (const [name, words] of Object.entries(figures.texts)) {
      for (const spot of place.querySelectorAll(`[data-text="${CSS.escape(name)}"]`)) {
        if (spot.textContent !== words) spot.textContent = words;
      }
    }
    for (const [name, path] of Object.entries(figures.paths)) {
      for (const spot of place.querySelectorAll(`[data-path="${CSS.escape(name)}"]`)) {
        spot.setAttribute("d", path);
      }
    }
    for (const piece of figures.bar) {
      for (const spot of place.querySelectorAll(`[data-piece="${CSS.escape(piece.status)}"]`)) {
        spot.setAttribute("x", piece.x);
        spot.setAttribute("width", piece.width);
      }
    }
    // Who listens is told now and then, and only what is new.
    if (figures.said !== saidWords && Date.now() - saidAt > SAY_EVERY) {
      saidWords = figures.said;
      saidAt = Date.now();
      said.textContent = saidWords;
    }
    // The first call of this process has come: the page has more to show.
    if ("saved" in figures.texts && !place.querySelector('[data-text="saved"]')) location.reload();
  };

  const ask = async () => {
    if (!paused && !document.hidden) {
      try {
        const answer = await fetch(place.dataset.live, { headers: { accept: "application/json" } });
        if (answer.ok) {
          put(await answer.json());
          show("Live", "live");
        } else if (answer.status === 401 || answer.status === 403) {
          location.reload();
          return;
        } else {
          show("The store does not answer", "lost");
        }
      } catch {
        show("The dashboard does not answer", "lost");
      }
    }
    setTimeout(ask, EVERY);
  };

  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Go on" : "Pause";
    show(paused ? "Paused" : "Live", paused ? "paused" : "live");
  });
  setTimeout(ask, EVERY);
})();
