// Shows the present state every ten seconds. Without scripts, the browser loads the page again.
"use strict";
setInterval(async () => {
  const main = document.querySelector("main");
  if (document.hidden || main.contains(document.activeElement)) return;
  const answer = await fetch("/", { cache: "no-store" }).catch(() => null);
  const note = document.getElementById("note");
  note.textContent = answer && answer.ok ? "" : "The server does not answer.";
  if (!answer || !answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!fresh.getElementById("note")) return location.reload();
  document.getElementById("summary").replaceWith(fresh.getElementById("summary"));
  main.replaceWith(fresh.querySelector("main"));
}, 10000);
