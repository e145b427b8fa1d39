"use strict";
// What the page gains from a script: theme, filter, copying, values under the pointer, the reader's
// own time. Everything is readable without it. Names come from users: text only, never markup.
(() => {
  const root = document.documentElement;
  const all = (selector, within) => [...(within || document).querySelectorAll(selector)];
  const one = (selector, within) => (within || document).querySelector(selector);
  root.classList.add("scripted");

  // Theme: the system's, until the reader chooses. Storage may be closed to a local file.
  const KEY = "aerobee-report-theme";
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const remembered = () => { try { return localStorage.getItem(KEY); } catch { return null; } };
  const remember = (value) => { try { localStorage.setItem(KEY, value); } catch { /* not kept */ } };
  const themeButton = one("#theme");
  const theme = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const other = () => (theme() === "dark" ? "light" : "dark");
  const label = () => {
    themeButton.textContent = other() === "dark" ? "Dark" : "Light";
    themeButton.setAttribute("aria-label", `Use ${other()} colours`);
  };
  const kept = remembered();
  if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  themeButton.addEventListener("click", () => {
    root.dataset.theme = other();
    remember(root.dataset.theme);
    label();
  });
  dark.addEventListener("change", label);
  label();

  // Times in the reader's own zone, on pointing.
  for (const time of all("time")) {
    const moment = new Date(time.dateTime);
    if (!Number.isNaN(moment.getTime())) time.title = `${moment.toLocaleString()} here`;
  }

  // Findings by severity and text.
  const cards = all(".finding");
  const chips = all(".chip");
  const search = one("#finding-filter");
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const severities = new Set(
      chips.filter((chip) => chip.getAttribute("aria-pressed") === "true")
        .map((chip) => chip.dataset.severity));
    let shown = 0;
    for (const card of cards) {
      const fits = severities.has(card.dataset.severity)
        && words.every((word) => card.dataset.words.includes(word));
      card.hidden = !fits;
      shown += fits;
    }
    for (const group of all(".alike")) {
      const fitting = [...group.querySelectorAll(".finding")].some((card) => !card.hidden);
      group.hidden = !fitting;
      if (words.length) group.querySelector("details").open = true;
    }
    one(".none-match").hidden = shown > 0;
    one(".shown").textContent = shown === cards.length ? "" : `${shown} of ${cards.length} shown`;
  };
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
      filter();
    });
  }
  if (search) search.addEventListener("input", filter);
  for (const button of all("[data-find]")) {
    if (!search) { button.hidden = true; continue; }
    button.addEventListener("click", () => {
      search.value = button.dataset.find;
      for (const chip of chips) chip.setAttribute("aria-pressed", "true");
      filter();
      one("#findings").scrollIntoView();
      search.focus({ preventScroll: true });
    });
  }

  // On paper nothing can be opened.
  addEventListener("beforeprint", () => {
    for (const folded of all(".alike details")) folded.open = true;
  });

  // Commands.
  const copyText = async (text, code) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const range = document.createRange();
      range.selectNodeContents(code);
      const selection = getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      return document.execCommand("copy");
    }
  };
  for (const button of all(".copy")) {
    button.addEventListener("click", async () => {
      const code = document.getElementById(button.dataset.copies);
      const done = await copyText(code.textContent, code);
      button.textContent = done ? "Copied" : "Selected";
      setTimeout(() => { button.textContent = "Copy"; }, 1600);
    });
  }

  // Values under the pointer, or under the arrow keys.
  const tip = one("#tip");
  const showTip = (lines, x, y) => {
    tip.replaceChildren(...lines.map((line) => {
      const paragraph = document.createElement("p");
      paragraph.textContent = line;
      return paragraph;
    }));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - box.width - 8))}px`;
    tip.style.top = `${y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18}px`;
  };
  const hideTip = () => { tip.hidden = true; };
  addEventListener("scroll", hideTip, { passive: true });
  addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });

  const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
  const stepFrom = (at, key, count) => {
    const from = at < 0 ? (steps[key] > 0 ? -1 : count) : at;
    return Math.max(0, Math.min(count - 1, from + steps[key]));
  };

  for (const chart of all(".chart")) {
    const data = JSON.parse(chart.dataset.series);
    const plot = one(".plot", chart);
    const cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
    cursor.setAttribute("class", "cursor");
    cursor.setAttribute("y1", "0");
    cursor.setAttribute("y2", "100%");
    let at = -1;
    const show = (index) => {
      at = index;
      const box = plot.getBoundingClientRect();
      const x = `${data.at[index] * 100}%`;
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      plot.append(cursor);
      const moment = new Date(data.times[index]).toISOString();
      showTip(
        [`${moment.slice(0, 10)} ${moment.slice(11, 19)} UTC`,
          ...data.labels.map((name, row) => `${name}: ${data.values[row][index] ?? "not known"}`)],
        box.left + data.at[index] * box.width, box.top + 20);
    };
    const leave = () => { at = -1; cursor.remove(); hideTip(); };
    chart.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      const share = (event.clientX - box.left) / box.width;
      let nearest = 0;
      data.at.forEach((place, index) => {
        if (Math.abs(place - share) < Math.abs(data.at[nearest] - share)) nearest = index;
      });
      if (data.at.length) show(nearest);
    });
    chart.addEventListener("pointerleave", leave);
    chart.addEventListener("blur", leave);
    chart.addEventListener("keydown", (event) => {
      if (!(event.key in steps) || !data.at.length) return;
      event.preventDefault();
      show(stepFrom(at, event.key, data.at.length));
    });
  }

  const readout = one(".readout");
  for (const row of all(".heat-cells")) {
    const said = JSON.parse(row.dataset.cells);
    const cells = [...row.children];
    let at = -1;
    const show = (index) => {
      if (cells[at]) cells[at].classList.remove("at");
      at = index;
      if (!cells[at]) { hideTip(); return; }
      cells[at].classList.add("at");
      readout.textContent = said[at];
      const box = cells[at].getBoundingClientRect();
      showTip([said[at]], box.left, box.top);
    };
    row.addEventListener("pointermove", (event) => {
      const index = cells.indexOf(event.target);
      if (index >= 0 && index !== at) show(index);
    });
    row.addEventListener("pointerleave", () => show(-1));
    row.addEventListener("blur", () => show(-1));
    row.addEventListener("keydown", (event) => {
      if (!(event.key in steps)) return;
      event.preventDefault();
      show(stepFrom(at, event.key, cells.length));
    });
  }
})();
