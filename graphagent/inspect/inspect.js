// Keys. Every page works without this file: what keys do, links and forms do as well.
"use strict";

const rows = () => [...document.querySelectorAll("tbody tr")].filter((row) => row.querySelector("a[href]") && row.offsetParent);
const problems = () => [...document.querySelectorAll(".problem")].filter((each) => each.offsetParent);
const views = { r: "runs", t: "threads", i: "inbox", f: "facts", n: "notes" };
let pressed = "";

function move(by) {
  const all = rows();
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1)];
  next?.querySelector("a[href]").focus();
  next?.scrollIntoView({ block: "nearest" });
}

function nextProblem() {
  const all = problems();
  const focused = document.activeElement;
  const after = (each) => focused === document.body || (focused.compareDocumentPosition(each) & Node.DOCUMENT_POSITION_FOLLOWING && !each.contains(focused));
  const found = all.find((each) => each !== focused && after(each)) ?? all[0];
  const target = found?.matches("tr") ? found.querySelector("a[href]") : found;
  target?.focus();
  target?.scrollIntoView({ block: "center" });
}

// What has a key of its own: a link is followed, other things are shown.
const marked = (key) => /^[a-z]$/.test(key) && document.querySelector(`[data-key=${key}]`);

// Keys are named where they do something: as the page is, and as a row of it is chosen.
const does = {
  j: () => rows().length, Enter: () => rows().length, x: boxBeside, n: () => problems().length,
  "/": () => document.querySelector("input[type=search]"), h: () => turning("h") ?? turning("l"), g: () => true, "?": () => true, Esc: () => true,
};
const turning = (key) => document.querySelector(`a[rel=${key === "h" ? "prev" : "next"}]`);

function boxBeside() {
  return document.activeElement.closest("tr")?.querySelector("input[type=checkbox]");
}

function nameKeys() {
  for (const each of document.querySelectorAll("[data-keys]")) {
    const [key, then] = each.dataset.keys.split(" ");
    const acts = key === "g" ? document.querySelector(`a[data-view="${views[then]}"]`) : (does[key] ?? marked)(key);
    (each.closest("li") ?? each).hidden = !acts;
  }
  document.querySelector(".keys").hidden = false;
}

document.addEventListener("focusin", nameKeys);
nameKeys();

function use(found) {
  if (found.matches("a")) return found.click();
  found.focus({ preventScroll: true });
  found.scrollIntoView({ block: "start" });
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") shut();
  const field = event.target.matches("input:not([type=checkbox]), textarea, select");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (field) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (pressed === "g" && views[event.key]) document.querySelector(`a[data-view="${views[event.key]}"]`)?.click();
  else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "n") nextProblem();
  else if (event.key === "x") boxBeside()?.click();
  else if (event.key === "?") document.querySelector("dialog").showModal();
  else if (event.key === "h" || event.key === "l") turning(event.key)?.click();
  else if (marked(event.key)) use(marked(event.key));
  else if (event.key === "/") document.querySelector("input[type=search]")?.focus();
  else { pressed = event.key; return; }
  pressed = "";
  event.preventDefault();
});

// What opens over the page: its first field has the focus, and Escape and a click elsewhere close it.
document.addEventListener("toggle", ({ target }) => target.open && target.querySelector(".over input:not([type=hidden]), .over button")?.focus(), true);
document.addEventListener("click", ({ target }) => shut(target));

function shut(target = null) {
  for (const each of document.querySelectorAll("details[open]:has(> .over)")) {
    if (each.contains(target)) continue;
    if (each.contains(document.activeElement)) each.querySelector("summary").focus();
    each.open = false;
  }
}

const every = document.querySelector("[data-all]");
const boxes = () => [...every.form.querySelectorAll("tbody input[type=checkbox]")];
every?.addEventListener("change", () => boxes().forEach((each) => (each.checked = every.checked)));
every?.form.addEventListener("change", countChosen);
if (every) addEventListener("pageshow", countChosen); // a browser that goes back ticks boxes again

function countChosen() {
  const chosen = boxes().filter((each) => each.checked).length;
  every.checked = chosen === boxes().length;
  for (const each of every.form.querySelectorAll("[data-counted]")) {
    each.disabled = !chosen;
    each.textContent = each.dataset.counted.replace(chosen ? "#" : " #", chosen || "");
  }
}

// A row of a timeline: its step is shown beside it, and the address says which.
const beside = document.getElementById("step");

async function choose(link) {
  const answer = await fetch(link.dataset.step);
  const shown = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("step");
  if (!shown) return location.assign(link.href);
  beside.replaceChildren(...shown.childNodes);
  beside.scrollTop = 0;
  nameKeys();
  document.querySelectorAll(".timeline .chosen").forEach((each) => each.classList.remove("chosen"));
  link.closest("tr").classList.add("chosen");
  history.replaceState(null, "", link.href);
  if (getComputedStyle(beside).position === "static") beside.scrollIntoView();
}

document.addEventListener("click", (event) => {
  if (!beside || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.target.closest("a:not([data-step])")) return;
  const link = event.target.closest("[data-row]")?.querySelector("a[data-step]");
  if (!link) return;
  event.preventDefault();
  choose(link).catch(() => location.assign(link.href));
});

// A run that is being executed: new rows come into its timeline; the rest of the page stays as it is until somebody wants what is new.
const live = document.querySelector("[data-follow]");
let source = null;

function follow() {
  if (document.hidden || source) return;
  source = new EventSource(live.dataset.follow);
  source.onmessage = (event) => {
    const told = JSON.parse(event.data);
    const fresh = told.entry - Number(live.dataset.entry);
    if (told.rows) grow(told.rows);
    say(`${told.at || "at work"} · ${told.worked} · ${told.turns} turns · ${told.tokens} tokens`, fresh > 0 ? `Show ${fresh} new ${fresh === 1 ? "entry" : "entries"}` : "");
  };
  source.addEventListener("over", () => {
    stop();
    document.removeEventListener("visibilitychange", changed);
    say("Nobody executes it any more.", "Show what became of it");
  });
  source.addEventListener("lost", lost);
  source.onerror = (event) => event.target.readyState === EventSource.CLOSED && lost();
}

function lost() {
  stop();
  say("It cannot be read at present.", "Load the page again");
  setTimeout(follow, 5000);
}

// Rows that are there keep their elements, so that focus, selection and scrolling stay.
function grow(html) {
  const table = document.querySelector(".timeline");
  const drawn = new DOMParser().parseFromString(html, "text/html").querySelector("table");
  if (!table || !drawn) return;
  const known = new Map([...table.querySelectorAll("[data-row]")].map((row) => [row.dataset.row, row]));
  table.tHead.querySelector("svg").replaceWith(drawn.tHead.querySelector("svg"));
  let last = null;
  for (const row of [...drawn.tBodies[0].rows]) {
    const old = known.get(row.dataset.row);
    known.delete(row.dataset.row);
    if (!old) last ? last.after(row) : table.tBodies[0].prepend(row);
    else if (old.innerHTML !== row.innerHTML) {
      const [link, fresh] = [old, row].map((each) => each.querySelector("a"));
      old.cells[0].className = row.cells[0].className;
      link.replaceChildren(...fresh.childNodes);
      link.href = fresh.href;
      link.dataset.step = fresh.dataset.step;
      old.cells[1].replaceChildren(...row.cells[1].childNodes);
      old.classList.toggle("problem", row.classList.contains("problem"));
    }
    last = old ?? row;
  }
  known.forEach((row) => row.remove());
}

function say(text, offer) {
  live.textContent = text;
  if (offer) live.append(" ", linked(offer));
}

function linked(text) {
  const link = document.createElement("a");
  link.href = location.href;
  link.textContent = text;
  link.className = "button";
  return link;
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

// A list: how many runs changed since is said, and how far those are that are being executed. Nothing moves until somebody wants to see it.
const list = document.querySelector("[data-changes]");

async function ask() {
  if (document.hidden) return;
  const told = await (await fetch(list.dataset.changes)).json();
  const going = new Map(told.going.map(([owner, run, text]) => [`${owner}\n${run}`, text]));
  document.querySelectorAll("[data-run]").forEach((each) => {
    const text = going.get(each.dataset.run);
    if (text) each.querySelector(".sub").textContent = text;
  });
  const text = told.changed ? `${told.changed} ${told.changed === 1 ? "run" : "runs"} changed ` : "";
  if (list.dataset.said === text) return;
  list.dataset.said = text;
  list.textContent = text;
  if (text) list.append(linked("Show"));
}

if (list) setInterval(() => ask().catch(() => {}), 2000);
