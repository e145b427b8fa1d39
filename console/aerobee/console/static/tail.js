// The live tail: puts messages in as texts, the newest first. The stream opens again by itself.
"use strict";
(() => {
  const ROWS_MAX = 200;
  const table = document.getElementById("tail");
  const state = document.getElementById("tail-state");
  const labels = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  let source = null;
  let skipped = 0;

  function say(text, isBad) {
    state.textContent = text;
    state.classList.toggle("bad", isBad);
    state.hidden = !text;
  }

  function row(message) {
    const made = document.createElement("tr");
    const link = document.createElement("a");
    link.href = message.href;
    link.className = "id";
    link.textContent = message.id;
    const time = document.createElement("time");
    time.textContent = new Date(message.stored_ms).toISOString().replace("T", " ").replace("Z", " UTC");
    const cells = [link, time, message.queue, message.offset.toLocaleString("en"), message.tag, message.keys, message.body];
    cells.forEach((content, place) => {
      const cell = document.createElement(place ? "td" : "th");
      if (!place) cell.scope = "row";
      cell.dataset.label = labels[place];
      if (place === 3) cell.className = "number";
      if (place > 4) cell.className = "long";
      cell.append(content);
      made.append(cell);
    });
    return made;
  }

  function open() {
    source = new EventSource(table.dataset.events);
    source.addEventListener("look", (event) => {
      const look = JSON.parse(event.data);
      for (const message of look.messages) table.tBodies[0].prepend(row(message));
      while (table.tBodies[0].rows.length > ROWS_MAX) table.tBodies[0].lastElementChild.remove();
      skipped += look.skipped;
      const silent = look.unanswered.length ? `${look.unanswered.join(", ")} does not answer: messages there are missing. ` : "";
      const left = skipped ? `${skipped.toLocaleString("en")} came faster than they are shown, and were left out.` : "";
      say(silent + left || (table.tBodies[0].rows.length ? "" : "Waiting for messages."), Boolean(silent));
    });
    source.addEventListener("trouble", (event) => say(`${JSON.parse(event.data).why} It goes on by itself.`, true));
    source.addEventListener("over", (event) => {
      source.close();
      say(JSON.parse(event.data).why, true);
    });
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED) {
        say("The console refused the tail: reload the page.", true);
      } else {
        say("The console does not answer; the page keeps trying. What comes meanwhile is not shown.", true);
      }
    });
  }

  open();
})();
