// Keeps the page up to date. Every button works without it.
"use strict";

(() => {
  const parts = document.getElementById("parts");

  const refresh = async () => {
    const answer = await fetch(parts.dataset.state, { cache: "no-store" });
    if (!answer.ok) return;
    const held = document.activeElement?.value;
    // The text comes from our own server, which escapes every value in it.
    parts.innerHTML = await answer.text();
    if (held) parts.querySelector(`button[value="${held}"]`)?.focus();
  };

  document.addEventListener("submit", async (event) => {
    event.preventDefault();
    const form = event.target;
    const body = new URLSearchParams(new FormData(form, event.submitter));
    await fetch(form.action, { method: "POST", body, redirect: "manual" });
    await refresh();
  });

  const again = async () => {
    try {
      await refresh();
    } finally {
      setTimeout(again, 400);
    }
  };
  again();
})();
