// The page: signs in, keeps what is shown up to date, listens to keys.

import { SignedOut, ask, keepToken, listen } from "./api.js";
import { changeSource, drawAccounts } from "./accounts.js";
import { $, does, say, sentence, tellTrouble } from "./dom.js";
import * as finds from "./finds.js";
import * as jobs from "./jobs.js";
import * as search from "./search.js";
import * as system from "./system.js";
import { clock, long, now, setServerTime, tick, zone } from "./times.js";
import * as watches from "./watches.js";

const VIEWS = ["accounts", "watches", "finds", "jobs", "system"];
const CALM_MS = 700; // at least so long between two looks, whatever happens
const CALM_TIMES = 6; // and so many times as long as one takes: a page that watches must not be what is watched
const SELDOM_MS = 20_000; // what no event tells of is seen after so long
const WATCHED_MS = 5_000; // the same while something waits: "8 s ago" grows old
const SOON_MS = 150;
const RECONNECT_MS = 3_000;

let overview = null;
let lookAt = 0;
let lookTimer;
let lastLook = 0;
let lookTook = 0;
let stream = null;

// --- looking

async function look() {
  lastLook = performance.now();
  const fresh = await ask("GET", "overview");
  lookTook = performance.now() - lastLook;
  show(fresh);
}

function show(fresh) {
  overview = fresh;
  setServerTime(fresh.at);
  drawAccounts(fresh, change);
  search.update(fresh);
  system.update(fresh);
  jobs.updateSum(fresh.jobs);
  count("jobs-count", fresh.jobs.failed, "failed");
  count("system-count", fresh.health.unwell.length, "unwell");
  showPause(fresh.paused_since);
  showMode(fresh.mode);
  watches.showSoon();
  finds.showSoon();
  $("version").textContent = `Cormorant ${fresh.version}`;
  document.title = fresh.needs_you.length ? `(${fresh.needs_you.length}) Cormorant` : "Cormorant";
  tick();
  lookAgain(nextOpening(fresh));
}

function count(id, number, what) {
  $(id).hidden = !number;
  $(id).textContent = number || "";
  $(id).title = `${number} ${what}`;
}

function showPause(since) {
  $("pause").textContent = since ? "Resume" : "Pause";
  $("pause").setAttribute("aria-pressed", String(Boolean(since)));
  $("paused").hidden = !since;
  $("paused").textContent = since ? `Everything is paused since ${clock(since)}: no site is asked, no job is started.` : "";
}

function showMode(mode) {
  const isLive = mode === "live";
  $("mode").hidden = false;
  $("mode").textContent = mode.toUpperCase();
  $("mode").classList.toggle("is-live", isLive);
  $("mode").title = isLive ? "What is chosen is handed over by itself." : "What is chosen is shown, and handed over only by hand.";
}

function nextOpening(fresh) {
  const times = [...fresh.accounts, ...fresh.waiting].map((each) => Date.parse(each.opens_at) - now()).filter((left) => left > 0);
  const isWatched = ["jobs", "watches", "finds"].some((view) => !$(`view-${view}`).hidden) || fresh.waiting.length > 0 || fresh.accounts.some((account) => account.state === "waits");
  return Math.min(isWatched ? WATCHED_MS : SELDOM_MS, ...times.map((left) => left + SOON_MS));
}

// Look after a while, or sooner if somebody else has asked for sooner; never more often than is calm.
function lookAgain(after_ms) {
  const at = Math.max(performance.now() + after_ms, lastLook + Math.max(CALM_MS, CALM_TIMES * lookTook));
  if (lookTimer && lookAt <= at) return;
  clearTimeout(lookTimer);
  lookAt = at;
  lookTimer = setTimeout(async () => {
    lookTimer = undefined;
    if (document.hidden || $("shell").hidden) return;
    try {
      await look();
    } catch (error) {
      if (failed(error)) lookAgain(3000);
    }
  }, at - performance.now());
}

// Whether to go on: not when the key is asked for again.
function failed(error) {
  if (error instanceof SignedOut) {
    signedOut("You were signed out.");
    return false;
  }
  showLive("away", "not reached");
  return true;
}

// --- listening

function connect() {
  stream?.close();
  stream = listen("events");
  stream.onopen = () => { showLive("on", "connected"); lookAgain(0); };
  stream.onerror = lost;
  stream.onmessage = (message) => {
    const event = JSON.parse(message.data);
    event.id = message.lastEventId;
    system.hear(event);
    if (event.name.startsWith("job.")) jobs.showSoon();
    if (/^(watchlist|saved_search|subscription|price)\./.test(event.name)) watches.showSoon();
    if (/^(want|handover|job)\./.test(event.name)) finds.showSoon();
    lookAgain(SOON_MS);
  };
}

// The browser comes back by itself from a broken connection, but not from an answer that says no, as proxies give.
function lost() {
  showLive("away", "reconnecting");
  lookAgain(1000);
  if (stream?.readyState !== EventSource.CLOSED) return;
  stream = null;
  setTimeout(() => { if (!stream && !document.hidden && !$("shell").hidden) connect(); }, RECONNECT_MS);
}

function disconnect() {
  stream?.close();
  stream = null;
}

function showLive(state, words) {
  $("live").dataset.state = state;
  $("live").lastElementChild.textContent = words;
}

// A page that nobody looks at holds no connection: browsers allow six to a host, for all pages together.
document.addEventListener("visibilitychange", () => {
  if ($("shell").hidden) return;
  if (document.hidden) disconnect();
  else connect();
});

// --- changing

document.addEventListener("changed", () => lookAgain(0));

async function change(name, what) {
  if (name !== null) await changeSource(name, what);
  if (name === null) drawAccounts(overview, change);
  else await look();
}

async function pauseOrResume() {
  const isPaused = Boolean(overview?.paused_since);
  show(await ask("POST", `everything/${isPaused ? "resume" : "pause"}`));
  say(isPaused ? "Everything goes on." : "Everything is paused.");
}

// --- signing in

async function start() {
  $("zone").textContent = `times in ${zone()}`;
  const session = await ask("GET", "session");
  if (session.is_open) await signedIn(session);
  else signedOut("");
}

async function signedIn(session) {
  keepToken(session);
  $("login").hidden = true;
  $("here").textContent = `Signed in until ${long(session.expires_at)}.`;
  await look();
  $("shell").hidden = false;
  route();
  connect();
}

function signedOut(words) {
  disconnect();
  search.clear();
  $("shell").hidden = true;
  $("login").hidden = false;
  $("login-error").textContent = words;
  $("key").focus();
}

$("login-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  $("login-error").textContent = "";
  try {
    const session = await ask("POST", "session", { key: $("key").value });
    $("key").value = "";
    await signedIn(session);
  } catch (error) {
    $("login-error").textContent = sentence(error.message.split(";")[0]); // where the key is stands below
    $("key").select();
  }
});

$("sign-out").addEventListener("click", does(async () => {
  await ask("DELETE", "session");
  keepToken({});
  signedOut("You are signed out.");
}));

// --- moving about

function route() {
  const wanted = location.hash.slice(1);
  const view = VIEWS.includes(wanted) ? wanted : "accounts";
  for (const each of VIEWS) $(`view-${each}`).hidden = each !== view;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (view === "watches") watches.show().catch(tellTrouble);
  if (view === "finds") finds.show().catch(tellTrouble);
  if (view === "jobs") jobs.show().catch(tellTrouble);
  if (view === "system") system.show();
}

window.addEventListener("hashchange", route);

function focusSearch() {
  location.hash = "#accounts";
  route();
  $("query").focus();
  $("query").select();
}

$("search-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const query = $("query").value.trim();
  if (query) search.begin(query, $("where").value).then(() => lookAgain(0)).catch(tellTrouble);
});

function nextTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  try { localStorage.setItem("cormorant-theme", root.dataset.theme); } catch { /* a browser that keeps nothing */ }
}

function escape() {
  if (search.isRunning()) does(search.end)();
  else if (search.isShown()) { search.clear(); $("query").value = ""; }
  if (document.activeElement === $("query") && !$("query").value) $("query").blur();
}

$("pause").addEventListener("click", does(pauseOrResume));
$("theme").addEventListener("click", nextTheme);
$("help-open").addEventListener("click", () => $("help").showModal());

const KEYS = {
  "/": focusSearch,
  "?": () => $("help").showModal(),
  p: () => does(pauseOrResume)(),
  t: nextTheme,
  1: () => { location.hash = "#accounts"; },
  2: () => { location.hash = "#watches"; },
  3: () => { location.hash = "#finds"; },
  4: () => { location.hash = "#jobs"; },
  5: () => { location.hash = "#system"; },
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || $("shell").hidden || $("help").open) return;
  if (event.key === "Escape") { escape(); return; }
  const isTyping = event.target instanceof HTMLElement && event.target.matches("input, select, textarea");
  if (isTyping || !(event.key in KEYS)) return;
  event.preventDefault();
  KEYS[event.key]();
});

jobs.prepare();
finds.prepare();
watches.prepare();
setInterval(tick, 1000);
start().catch((error) => signedOut(sentence(error.message)));
