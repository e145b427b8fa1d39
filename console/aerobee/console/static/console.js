// Pages work without this file. It stops the refresh of a page that nobody sees or that somebody is
// selecting in, and says when what is shown is no longer current.
"use strict";
(() => {
  const note = document.getElementById("stale");
  let updated = new Date();

  function stale(why) {
    note.textContent = `${why} This is what was known at ${updated.toLocaleTimeString()}.`;
    note.hidden = false;
  }

  document.body.addEventListener("htmx:beforeRequest", (event) => {
    const isSelecting = !window.getSelection().isCollapsed;
    const holdsFocus = event.target.contains(document.activeElement) && document.activeElement.matches("input, select");
    if (document.hidden || isSelecting || holdsFocus) event.preventDefault();
  });
  document.body.addEventListener("htmx:afterSwap", () => {
    updated = new Date();
    note.hidden = true;
  });
  document.body.addEventListener("htmx:responseError", (event) => {
    const status = event.detail.xhr.status;
    if (status === 401 || status === 403) stale("You may no longer see this.");
    else stale("The cluster did not answer; the page keeps trying.");
  });
  for (const name of ["htmx:sendError", "htmx:timeout"]) {
    document.body.addEventListener(name, () => stale("The console does not answer; the page keeps trying."));
  }
  // On a telephone the pages are one row that can be moved.
  document.querySelector(".bar [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
  // The session has ended: the answer is the page to sign in, which has no such section.
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    if (new URL(event.detail.xhr.responseURL).pathname === "/sign-in") {
      event.detail.shouldSwap = false;
      window.location.reload();
    }
  });
})();
