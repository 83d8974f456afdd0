// What is shown of watches: the artists, when each is looked at and why not sooner, and the searches that are repeated.

import { ask } from "./api.js";
import { $, does, draw, h, plural, say } from "./dom.js";
import { now, span, ticking } from "./times.js";

let again;
let begun = 0;
let drawn = 0;
let asked = ""; // what would be removed: it takes two clicks

export async function show() {
  begun += 1;
  const mine = begun;
  const [artists, saved] = await Promise.all([ask("GET", "watchlist"), ask("GET", "saved-searches")]);
  if (mine < drawn) return; // a later look was quicker, and knows more
  drawn = mine;
  $("artists-sum").textContent = artists.length ? `${artists.length.toLocaleString()} watched` : "";
  draw($("artists"), [artists, asked], () => artists.length ? artists.map(artistRow) : nobody());
  draw($("saved"), [saved, asked], () => saved.length ? saved.map(savedRow) : h("p", { class: "empty" }, "No search is repeated yet."));
}

export function showSoon() {
  if ($("view-watches").hidden) return;
  again ??= setTimeout(() => { again = undefined; if (!$("view-watches").hidden) show().catch(() => {}); }, 500);
}

export function prepare() {
  $("artist-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const artist = $("artist").value.trim();
    if (!artist) return;
    does(async () => {
      const added = await ask("POST", "watchlist", { artist });
      $("artist").value = "";
      say(`${added.name} is watched.`);
      await show();
    })();
  });
}

function nobody() {
  return h("div", { class: "empty" }, h("p", {}, "Nobody is watched yet. Give a name above, or where the service runs:"), h("pre", {}, "cormorant watchlist add \"NAME\""));
}

function artistRow(artist) {
  const path = `watchlist/${artist.number}`;
  const isLeft = artist.left_alone_until && Date.parse(artist.left_alone_until) > now();
  const way = artist.is_paused ? "resume" : "pause";
  const Way = artist.is_paused ? "Resume" : "Pause";
  const state = artist.is_paused ? "paused" : isLeft ? "waits" : artist.failures ? "failing" : "fine";
  return h("article", { class: `row is-${state}`, "aria-label": artist.name },
    h("h3", {}, h("i", { class: "dot", "aria-hidden": "true" }), artist.name),
    h("p", { class: "facts" }, looks(artist.last_looked_at, isLeft || artist.is_paused ? null : artist.next_look_at),
      artist.is_paused && " · paused",
      isLeft && !artist.is_paused && [" · left alone, looked at again ", ticking("until", artist.left_alone_until)],
      artist.failures > 0 && ` · ${plural(artist.failures, "failure")}`,
      artist.hand_to.length > 0 && ` · to ${artist.hand_to.join(", ")}`),
    artist.last_error && h("p", { class: "error" }, artist.last_error),
    h("div", { class: "acts" },
      !artist.is_paused && button("Look", `look-${artist.number}`, `Look at ${artist.name} now`, () => act("POST", `${path}/check`, `${artist.name} is looked at.`)),
      button(Way, `way-${artist.number}`, `${Way} ${artist.name}`, () => act("POST", `${path}/${way}`, `${artist.name}: ${artist.is_paused ? "goes on" : "paused"}`)),
      remover(artist.number, artist.name, path)));
}

function savedRow(saved) {
  const path = `saved-searches/${encodeURIComponent(saved.name)}`;
  const what = saved.query || `all that is new${saved.categories.length ? ` in ${saved.categories.join(", ")}` : ""}`;
  const way = saved.is_paused ? "resume" : "pause";
  const Way = saved.is_paused ? "Resume" : "Pause";
  return h("article", { class: `row is-${saved.is_paused ? "paused" : saved.last_error ? "failing" : "fine"}`, "aria-label": saved.name },
    h("h3", {}, h("i", { class: "dot", "aria-hidden": "true" }), saved.name),
    h("p", { class: "facts" }, `“${what}”${saved.search.length ? ` at ${saved.search.join(", ")}` : ""}, every ${span(saved.every_s)}`),
    h("p", { class: "facts" }, saved.is_paused ? "paused" : looks(saved.last_checked_at, saved.next_check_at)),
    saved.last_error && h("p", { class: "error" }, saved.last_error),
    h("div", { class: "acts" },
      !saved.is_paused && button("Look", `check-${saved.name}`, `Repeat ${saved.name} now`, () => act("POST", `${path}/check`, `${saved.name} is repeated.`)),
      button(Way, `way-${saved.name}`, `${Way} ${saved.name}`, () => act("POST", `${path}/${way}`, `${saved.name}: ${saved.is_paused ? "goes on" : "paused"}`)),
      saved.origin !== "configured" && remover(saved.name, saved.name, path)));
}

function looks(last, next) {
  return [last ? ["looked at ", ticking("since", last)] : "not looked at yet", next && [", next ", ticking("until", next)]];
}

function button(words, key, label, action) {
  return h("button", { type: "button", class: "plain", "data-key": key, "aria-label": label, onclick: does(action) }, words);
}

function remover(key, name, path) {
  const mark = `remove-${path}`;
  const isAsked = asked === mark;
  return button(isAsked ? "Really remove" : "Remove", mark, `${isAsked ? "Really remove" : "Remove"} ${name}`, async () => {
    asked = isAsked ? "" : mark;
    if (isAsked) await act("DELETE", path, `${name} is watched no more.`);
    else await show();
  });
}

async function act(method, path, words) {
  await ask(method, path);
  say(words);
  await show();
}
