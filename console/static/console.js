// Keeps figures fresh: every few seconds the page is asked for again, and its tables marked data-fresh are exchanged.
// A table that is selected in, and a page that nobody looks at, are left alone. "/" goes to the search field.
"use strict";
const PERIOD_MS = 5000;

function fresh(root) {
  return [...root.querySelectorAll("table[data-fresh]")];
}

async function refresh() {
  const shown = fresh(document);
  if (document.hidden || !shown.length || String(window.getSelection())) return;
  const answer = await fetch(window.location.href);
  if (!answer.ok) return;
  const found = fresh(new DOMParser().parseFromString(await answer.text(), "text/html"));
  if (found.length !== shown.length) return;
  shown.forEach((table, number) => {
    if (!table.contains(document.activeElement)) table.replaceWith(found[number]);
  });
}

if (fresh(document).length) {
  setInterval(() => refresh().catch(() => {}), PERIOD_MS); // a server that is away is tried again
}

document.addEventListener("keydown", (event) => {
  const field = document.querySelector("input[type=search]");
  if (event.key === "/" && field && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) {
    event.preventDefault();
    field.focus();
  }
});
