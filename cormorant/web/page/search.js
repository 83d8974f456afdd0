// How does a person search? Every account has a line of its own: why it waits, that it is asked, what it found.

import { ask, listen } from "./api.js";
import { isSearched, waitWords } from "./accounts.js";
import { $, does, h, plural, say } from "./dom.js";
import { clock, span, ticking } from "./times.js";

const SHOWN_AT_FIRST = 8;
const ENDS = { failed: "failed", refused: "refused", rate_limited: "not asked", cancelled: "cancelled", shut_down: "the service stopped", deduplicated: "asked by somebody else" };

let current = null;
let overview = null;

export const isRunning = () => current !== null && !current.isDone;
export const isShown = () => current !== null;

export async function begin(query, where) {
  await end();
  const sources = where ? [where] : overview.accounts.filter(isSearched).map((account) => account.name);
  const began = await ask("POST", "searches", where ? { query, sources } : { query });
  current = { id: began.id, query, beganAt: performance.now(), isDone: false, lines: new Map(), results: 0 };
  for (const name of sources) current.lines.set(name, { outcome: null, isAll: false });
  render();
  follow(current);
}

function follow(search) {
  const stream = listen(`searches/${search.id}/stream`);
  search.stream = stream;
  stream.addEventListener("outcome", (event) => {
    const outcome = JSON.parse(event.data);
    search.lines.set(outcome.source, { outcome, isAll: false });
    search.results = [...search.lines.values()].reduce((sum, line) => sum + (line.outcome?.results.length ?? 0), 0);
    if (search === current) render();
  });
  stream.addEventListener("done", () => {
    stream.close();
    search.isDone = true;
    search.tookS = (performance.now() - search.beganAt) / 1000;
    if (search === current) render();
    say(`${plural(search.results, "result")} for ${search.query}`);
  });
  stream.addEventListener("error", () => {
    if (stream.readyState !== EventSource.CLOSED || search.isDone) return;
    search.isDone = true;
    if (search === current) render();
  });
}

// End the search that runs; what has come stays.
export async function end() {
  const search = current;
  if (!search || search.isDone) return;
  await ask("DELETE", `searches/${search.id}`);
  say("The search was ended.");
}

export function clear() {
  current?.stream?.close();
  current = null;
  $("found").hidden = true;
  $("found").replaceChildren();
}

export function update(fresh) {
  overview = fresh;
  if (isRunning()) render();
}

function render() {
  const search = current;
  const place = $("found");
  place.hidden = false;
  place.setAttribute("aria-busy", String(!search.isDone));
  const answered = [...search.lines.values()].filter((line) => line.outcome?.status === "found").length;
  const words = search.isDone
    ? `${plural(search.results, "result")} from ${answered} of ${plural(search.lines.size, "account")}${search.tookS ? ` in ${span(search.tookS)}` : ""}`
    : `${plural(search.results, "result")} so far`;
  const focused = place.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  place.replaceChildren(
    h("header", {},
      h("h2", {}, `“${search.query}”`),
      h("p", { class: "muted" }, words),
      search.isDone
        ? h("button", { type: "button", class: "plain", "data-key": "clear", onclick: clear }, "Clear")
        : h("button", { type: "button", "data-key": "end", onclick: does(end), "aria-keyshortcuts": "Escape" }, "End")),
    ...[...search.lines].map(([name, line]) => source(name, line)));
  if (focused) (place.querySelector(`[data-key="${CSS.escape(focused)}"]`) ?? $("query")).focus();
}

function source(name, line) {
  const { outcome } = line;
  return h("section", { class: `from is-${outcome ? outcome.status : "pending"}`, "aria-label": name },
    h("h3", {}, h("i", { class: "dot", "aria-hidden": "true" }), name, h("span", { class: "status" }, outcome ? ended(outcome) : pending(name))),
    outcome?.results.length > 0 && results(name, line));
}

function pending(name) {
  const runs = overview.running.find((each) => each.source === name && each.query === current.query);
  if (runs) return ["asked, ", ticking("for", runs.asked_at)];
  const account = overview.accounts.find((each) => each.name === name);
  if (!account || account.state === "open") return "is about to be asked";
  return h("span", {}, "waits: ", waitWords(account), h("span", { class: "reason" }, account.why));
}

function ended(outcome) {
  if (outcome.status !== "found") return h("span", {}, ENDS[outcome.status] ?? outcome.status, outcome.error && h("span", { class: "reason" }, outcome.error));
  const took = outcome.is_cached ? "kept from before" : `${span(outcome.took_s)}${outcome.waited_s > 1 ? ` after ${span(outcome.waited_s)} of waiting` : ""}`;
  const cut = outcome.was_cut ? ", cut short by the time-out: there may be more" : "";
  return `${outcome.results.length ? plural(outcome.results.length, "result") : "nothing"}, ${took}${cut}`;
}

function results(name, line) {
  const all = line.outcome.results;
  const some = line.isAll ? all : all.slice(0, SHOWN_AT_FIRST);
  return [
    h("ul", { class: "results" }, some.map(result)),
    all.length > some.length && h("button", { type: "button", class: "plain rest", "data-key": `rest-${name}`, onclick: () => { line.isAll = true; render(); } }, `${all.length - some.length} more`),
  ];
}

function result(each) {
  const facts = [
    each.size_bytes && bytes(each.size_bytes),
    each.published && clock(each.published),
    each.seeders !== null && plural(each.seeders, "seeder"),
    each.protocol === "usenet" && "usenet",
  ].filter(Boolean);
  return h("li", {}, h("span", { class: "title" }, each.title), h("span", { class: "muted" }, facts.join(" · ")));
}

export function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  let value = count;
  while (value >= 1000 && place < units.length - 1) { value /= 1000; place += 1; }
  return `${value.toLocaleString(undefined, { maximumFractionDigits: value < 10 && place > 1 ? 1 : 0 })} ${units[place]}`;
}
