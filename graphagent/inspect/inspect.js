// Keys. Every page works without this file: what keys do, links and forms do as well.
"use strict";

const rows = () => [...document.querySelectorAll("tbody tr")].filter((row) => row.querySelector("a[href]") && row.offsetParent);
let pressed = "";

function step(by) {
  const all = rows();
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1)];
  next?.querySelector("a[href]").focus();
  next?.scrollIntoView({ block: "nearest" });
}

function nextProblem() {
  const all = [...document.querySelectorAll(".problem")].filter((each) => each.offsetParent);
  const focused = document.activeElement;
  const after = (each) => focused === document.body || (focused.compareDocumentPosition(each) & Node.DOCUMENT_POSITION_FOLLOWING && !each.contains(focused));
  const found = all.find((each) => each !== focused && after(each)) ?? all[0];
  const target = found?.matches("tr") ? found.querySelector("a[href]") : found;
  target?.focus();
  target?.scrollIntoView({ block: "center" });
}

document.addEventListener("keydown", (event) => {
  const field = event.target.matches("input:not([type=checkbox]), textarea, select");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (field) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const views = { r: "runs", t: "threads", i: "inbox", f: "facts", n: "notes" };
  if (pressed === "g" && views[event.key]) document.querySelector(`a[data-view="${views[event.key]}"]`)?.click();
  else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "n") nextProblem();
  else if (event.key === "x") document.activeElement.closest("tr")?.querySelector("input[type=checkbox]")?.click();
  else if (event.key === "/") document.querySelector("input[type=search]")?.focus();
  else { pressed = event.key; return; }
  pressed = "";
  event.preventDefault();
});

const every = document.querySelector("[data-all]");
const boxes = () => [...every.form.querySelectorAll("tbody input[type=checkbox]")];
every?.addEventListener("change", () => boxes().forEach((each) => (each.checked = every.checked)));
every?.form.addEventListener("change", () => (every.checked = boxes().every((each) => each.checked)));

// A run that is being executed: what is new is said in one line, and the page stays as it is until somebody wants it.
const live = document.querySelector("[data-follow]");
let source = null;

function follow() {
  if (document.hidden || source) return;
  source = new EventSource(live.dataset.follow);
  source.onmessage = (event) => {
    const told = JSON.parse(event.data);
    const fresh = told.entry - Number(live.dataset.entry);
    say(`${told.at || "at work"} · ${told.worked} · ${told.turns} turns · ${told.tokens} tokens`, fresh > 0 ? `Show ${fresh} new ${fresh === 1 ? "entry" : "entries"}` : "");
  };
  source.addEventListener("over", () => {
    stop();
    document.removeEventListener("visibilitychange", changed);
    say("Nobody executes it any more.", "Show what became of it");
  });
}

function say(text, offer) {
  live.textContent = text;
  if (!offer) return;
  const link = document.createElement("a");
  link.href = location.href;
  link.textContent = offer;
  link.className = "button";
  live.append(" ", link);
}

function stop() {
  source?.close();
  source = null;
}

function changed() {
  if (document.hidden) stop();
  else follow();
}

if (live) {
  document.addEventListener("visibilitychange", changed);
  follow();
}
