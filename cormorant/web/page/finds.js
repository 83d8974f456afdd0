// What is shown of finds: what is wanted and where it is, why this candidate and not the others, and what was handed over.

import { ask } from "./api.js";
import { $, does, draw, h, plural, say } from "./dom.js";
import { bytes } from "./search.js";
import { clock, long, ticking } from "./times.js";

const BY_HAND = new Set(["wanted", "searching", "chosen", "gave up"]);
const AGAIN = new Set(["wanted", "chosen", "gave up", "ignored"]);
const DOWNLOADS = 20;
const open = new Map(); // what was asked "why", and what was said
let pages = 1;
let again;
let begun = 0;
let drawn = 0;

export async function show() {
  begun += 1;
  const mine = begun;
  const state = $("finds-state").value;
  const wants = [];
  let before = null;
  for (let page = 0; page < pages; page += 1) {
    const which = state === "all" ? {} : state ? { state } : { ignored: "false" };
    const words = new URLSearchParams({ limit: "50", ...which, ...(before && { before }) });
    const said = await ask("GET", `wants?${words}`);
    wants.push(...said.wants);
    before = said.next_before;
    if (!before) break;
  }
  const { downloads } = await ask("GET", `downloads?limit=${DOWNLOADS}`);
  for (const want of wants) {
    if (!open.has(want.id)) continue;
    const said = await ask("GET", `wants/${want.id}`);
    if (open.has(want.id)) open.set(want.id, said); // it may have been closed meanwhile
  }
  if (mine < drawn) return; // a later look was quicker, and knows more
  drawn = mine;
  $("finds-more").hidden = !before;
  $("finds-sum").textContent = sum(wants, before);
  draw($("finds"), [wants, wants.map((want) => open.get(want.id) ?? null)], () => wants.length ? wants.map(find) : nothing(state));
  draw($("downloads"), downloads, list);
}

export function showSoon() {
  if ($("view-finds").hidden) return;
  again ??= setTimeout(() => { again = undefined; if (!$("view-finds").hidden) show().catch(() => {}); }, 500);
}

export function prepare() {
  $("finds-state").addEventListener("change", does(() => { pages = 1; return show(); }));
  $("finds-more").addEventListener("click", does(() => { pages += 1; return show(); }));
}

function sum(wants, isMore) {
  if (isMore || !wants.length) return "the newest first";
  const done = wants.filter((want) => want.state === "done").length;
  return `${wants.length.toLocaleString()} wanted, ${done.toLocaleString()} done`;
}

function nothing(state) {
  if (state && state !== "all") return h("p", { class: "empty" }, `Nothing is in the state “${state}”.`);
  return h("p", { class: "empty" }, "Nothing is wanted yet. What watched artists release and what saved searches find comes here.");
}

function find(want) {
  const name = [want.artist, want.title].filter(Boolean).join(" – ");
  const shown = open.get(want.id);
  return h("article", { class: `find is-${want.state.replaceAll(" ", "-")}`, "aria-label": name },
    h("h3", {}, want.artist && h("span", { class: "by" }, want.artist), h("span", { class: "title" }, want.title)),
    h("p", { class: "where" }, h("span", { class: "state" }, want.state), h("span", { class: "muted" }, ticking("since", want.changed_at))),
    h("p", { class: "reason" }, want.reason || "", want.next_look_at && want.state === "wanted" && [", searched again ", ticking("until", want.next_look_at)], origin(want)),
    h("div", { class: "acts" }, acts(want, name)),
    shown && why(want, shown));
}

function origin(want) {
  const [kind, name] = want.watch.split(/:(.*)/s);
  const words = { saved: "saved search", feed: "feed" }[kind];
  return words && ` · of the ${words} ${name}`;
}

function acts(want, name) {
  const isOpen = open.has(want.id);
  return [
    want.state === "chosen" && want.hand_to.length > 0 && button("Hand over", `hand-${want.id}`, `Hand over ${name}`, () => handOver(want, null), ""),
    AGAIN.has(want.state) && button("Retry", `retry-${want.id}`, `Search again for ${name}`, () => act(`wants/${want.id}/retry`, "It is searched again.")),
    BY_HAND.has(want.state) && button("Ignore", `ignore-${want.id}`, `Ignore ${name}`, () => act(`wants/${want.id}/ignore`, "It is wanted no more.")),
    h("button", { type: "button", class: "plain", "data-key": `why-${want.id}`, "aria-expanded": String(isOpen), "aria-label": `Why: ${name}`, onclick: does(async () => {
      if (isOpen) open.delete(want.id);
      else open.set(want.id, await ask("GET", `wants/${want.id}`));
      await show();
    }) }, "Why"),
  ];
}

function why(want, shown) {
  const { candidates } = shown;
  const fit = candidates.filter((each) => each.place !== null).length;
  const words = candidates.length ? `${fit} of ${plural(candidates.length, "candidate")} ${fit === 1 ? "fits" : "fit"}${want.choose ? ` the profile ${want.choose}` : ""}.` : "No candidate was found so far.";
  return h("div", { class: "why" },
    h("p", {}, words, want.looks > 0 && ` Searched ${plural(want.looks, "time")} in vain.`, want.search.length > 0 && ` Searched at ${want.search.join(", ")}.`),
    candidates.length > 0 && h("ol", { class: "candidates" }, candidates.map((each) => candidate(want, each))));
}

function candidate(want, each) {
  const isChosen = want.chosen === each.id;
  const kind = each.failed_because ? "failed" : each.place === null ? "unfit" : isChosen ? "chosen" : "fit";
  const facts = [
    each.source,
    each.size_bytes && bytes(each.size_bytes),
    each.seeders !== null && plural(each.seeders, "seeder"),
    each.published && clock(each.published),
    each.protocol !== "torrent" && each.protocol,
    each.is_freeleech && "freeleech",
  ].filter(Boolean);
  const mayGive = BY_HAND.has(want.state) && want.hand_to.length > 0;
  return h("li", { class: `candidate is-${kind}`, "aria-current": isChosen && "true" },
    h("span", { class: "place" }, each.place ?? "–"),
    h("div", {},
      h("p", { class: "title" }, each.title, isChosen && h("span", { class: "mark-chosen" }, "chosen")),
      h("p", { class: "muted" }, facts.join(" · "), each.merits.map((merit) => h("span", { class: "merit" }, merit))),
      each.reasons.map((reason) => h("p", { class: "unfit-why" }, reason)),
      each.failed_because && h("p", { class: "error" }, `tried in vain: ${each.failed_because}`)),
    mayGive && button("Hand over", `give-${want.id}-${each.id}`, `Hand over ${each.title} of ${each.source}`, () => handOver(want, each.id)));
}

function list(downloads) {
  if (!downloads.length) return h("p", { class: "empty" }, "Nothing was handed over yet.");
  return h("table", {},
    h("thead", {}, h("tr", {}, ["Find", "State", "Target", "When", ""].map((name) => h("th", { scope: "col" }, name || h("span", { class: "unseen" }, "Acts"))))),
    h("tbody", {}, downloads.map(download)));
}

function download(each) {
  return h("tr", { class: `job download is-${each.state.replaceAll(" ", "-")}` },
    h("td", { class: "what" }, each.title, each.reason && h("span", { class: "reason" }, each.reason)),
    h("td", {}, h("span", { class: "state" }, each.state)),
    h("td", { class: "target" }, each.target, each.times_sent > 1 && h("span", { class: "times" }, `×${each.times_sent}`)),
    h("td", { class: "when" }, h("time", { datetime: each.changed_at, title: long(each.changed_at) }, clock(each.changed_at, true))),
    h("td", { class: "acts" }, each.state === "held" && [
      button("It arrived", `arrived-${each.id}`, `${each.title} has arrived`, () => act(`downloads/${each.id}/arrived`, "It is done."), ""),
      button("Send again", `send-${each.id}`, `Send ${each.title} again`, () => act(`downloads/${each.id}/send-again`, "It is sent again."), ""),
    ]));
}

function button(words, key, label, action, kind = "plain") {
  return h("button", { type: "button", class: kind || null, "data-key": key, "aria-label": label, onclick: does(action) }, words);
}

const handOver = (want, candidate) => act(`wants/${want.id}/hand-over`, "It is handed over.", candidate ? { candidate } : {});

async function act(path, words, body) {
  await ask("POST", path, body);
  say(words);
  document.dispatchEvent(new Event("changed"));
  await show();
}
