// What is shown of watches: artists, feeds, prices and searches that are repeated; when each is looked at, and what came of it.

import { ask } from "./api.js";
import { $, does, draw, h, plural, say } from "./dom.js";
import { now, span, ticking } from "./times.js";

const FEEDS_SHOWN = 50;

let again;
let begun = 0;
let drawn = 0;
let asked = ""; // what would be removed: it takes two clicks

export async function show() {
  begun += 1;
  const mine = begun;
  const [artists, saved, feeds, prices] = await Promise.all(
    ["watchlist", "saved-searches", `subscriptions?limit=${FEEDS_SHOWN}`, "prices"].map((path) => ask("GET", path)));
  if (mine < drawn) return; // a later look was quicker, and knows more
  drawn = mine;
  $("artists-sum").textContent = artists.length ? `${artists.length.toLocaleString()} watched` : "";
  draw($("artists"), [artists, asked], () => artists.length ? artists.map(artistRow) : nobody());
  draw($("saved"), [saved, asked], () => saved.length ? saved.map(savedRow) : h("p", { class: "empty" }, "No search is repeated yet."));
  drawFeeds(feeds);
  draw($("prices"), [prices, asked], () => prices.length ? prices.map(priceRow) : none("No price is watched yet.", "cormorant prices add NAME TITLE"));
}

function drawFeeds({ subscriptions: feeds, last_checks: last, next_after: more }) {
  const failing = feeds.filter((feed) => feed.failures).length;
  $("feeds-sum").textContent = feeds.length ? `${feeds.length}${more ? " and more" : ""} checked${failing ? `, ${failing} failing` : ""}` : "";
  draw($("feeds"), [feeds, last, more, asked], () => feeds.length
    ? [feeds.map((feed) => feedRow(feed, last[feed.id])), more && none("There are more:", `cormorant subscriptions list --after ${more}`)]
    : none("No feed is checked yet.", "cormorant subscriptions add NAME URL"));
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
  return none("Nobody is watched yet. Give a name above, or where the service runs:", "cormorant watchlist add \"NAME\"");
}

function none(words, command) {
  return h("div", { class: "empty" }, h("p", {}, words), h("pre", {}, command));
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
      remover(artist.name, path)));
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
      saved.origin !== "configured" && remover(saved.name, path)));
}

function feedRow(feed, last) {
  const path = `subscriptions/${feed.id}`;
  const way = feed.is_paused ? "resume" : "pause";
  const Way = feed.is_paused ? "Resume" : "Pause";
  return h("article", { class: `row is-${feed.is_paused ? "paused" : feed.failures ? "failing" : "fine"}`, "aria-label": feed.name },
    h("h3", {}, h("i", { class: "dot", "aria-hidden": "true" }), feed.name),
    h("p", { class: "facts" }, cadence(feed), feed.auto_import ? feed.hand_to.length > 0 && `, to ${feed.hand_to.join(", ")}` : ", only counted"),
    h("p", { class: "facts" }, looks(feed.last_checked_at, feed.is_paused ? null : feed.next_check_at, "checked"), last?.status === "success" && brought(last)),
    feed.is_paused && h("p", { class: "facts" }, feed.paused_because),
    !feed.is_paused && feed.last_error && h("p", { class: "error" }, feed.last_error),
    h("div", { class: "acts" },
      button("Check", `feed-${feed.id}`, `Check ${feed.name} now`, () => check(feed, path)),
      button(Way, `way-feed-${feed.id}`, `${Way} ${feed.name}`, () => act("POST", `${path}/${way}`, `${feed.name}: ${feed.is_paused ? "goes on" : "paused"}`)),
      feed.origin !== "configured" && remover(feed.name, path)));
}

function brought(check) {
  return check.new_items > 0 ? [" · ", h("span", { class: "brought" }, `${check.new_items.toLocaleString()} new`)] : " · nothing new";
}

function cadence(feed) {
  if (feed.cron) return `by cron ${feed.cron} ${feed.zone}`;
  if (feed.effective_s === null) return `every ${span(feed.every_s)}`;
  return `every ${span(feed.effective_s)} instead of ${span(feed.every_s)} ${feed.failures ? `after ${plural(feed.failures, "failure")}` : "by its activity"}`;
}

async function check(feed, path) {
  const { status, new_items: count } = await ask("POST", `${path}/check`);
  say(status === "success" ? `${feed.name}: ${count ? plural(count, "new item") : "nothing new"}.` : `${feed.name} could not be checked.`);
  await show();
}

function priceRow(price) {
  const path = `prices/${encodeURIComponent(price.name)}`;
  const { value } = price;
  const side = value?.side || "";
  const limit = side && price[`${side}_cents`];
  const limits = ["below", "above"].filter((each) => price[`${each}_cents`] !== null).map((each) => `${each} ${money(price[`${each}_cents`], price.currency)}`);
  const thing = [price.title, price.year, price.mintmark, price.denomination, price.series].filter(Boolean).join(" ");
  const way = price.is_paused ? "resume" : "pause";
  const Way = price.is_paused ? "Resume" : "Pause";
  // One that the settings no longer have can only be removed.
  const isTakenOut = price.origin === "taken out of the settings";
  return h("article", { class: `row is-${price.idle_because ? "paused" : side ? "told" : value ? "fine" : "unknown"}`, "aria-label": price.name },
    h("h3", {}, h("i", { class: "dot", "aria-hidden": "true" }), price.name),
    value ? h("p", { class: "value" }, money(value.cents, value.currency), limit && h("small", {}, `${side} ${money(limit, price.currency)}`)) : null,
    h("p", { class: "facts" }, `${thing}, ${value ? `the median of ${plural(value.points, "sale")} ${matches[value.match] ?? value.match}` : "of which no sale is known"}`),
    h("p", { class: "facts" }, looks(value?.valued_at, price.idle_because ? null : price.next_check_at, "valued"), !limit && limits.length > 0 && ` · told ${limits.join(" or ")}`),
    price.idle_because && h("p", { class: "facts" }, price.idle_because),
    h("div", { class: "acts" },
      !isTakenOut && button("Check", `price-${price.name}`, `Ask about ${price.name} now`, () => act("POST", `${path}/check`, `${price.name} is asked about.`)),
      !isTakenOut && button(Way, `way-price-${price.name}`, `${Way} ${price.name}`, () => act("POST", `${path}/${way}`, `${price.name}: ${price.is_paused ? "goes on" : "paused"}`)),
      price.origin !== "configured" && remover(price.name, path)));
}

const matches = { exact: "matching in full", year: "matching in title and year", title: "matching in title" };

// Cents of any currency: those that the browser does not know are written as they are.
function money(cents, currency) {
  try {
    return new Intl.NumberFormat(undefined, { style: "currency", currency, minimumFractionDigits: 2, maximumFractionDigits: 2 }).format(cents / 100);
  } catch {
    return `${(cents / 100).toFixed(2)} ${currency}`;
  }
}

function looks(last, next, verb = "looked at") {
  return [last ? [`${verb} `, ticking("since", last)] : `not ${verb} yet`, next && [", next ", ticking("until", next)]];
}

function button(words, key, label, action) {
  return h("button", { type: "button", class: "plain", "data-key": key, "aria-label": label, onclick: does(action) }, words);
}

function remover(name, path) {
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
