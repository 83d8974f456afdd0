// When is that, in the zone of whoever looks? Countdowns run by the clock of the server, which may not be ours.

import { h } from "./dom.js";

let ahead_ms = 0;

export function setServerTime(at) {
  ahead_ms = Date.parse(at) - Date.now();
}

export const now = () => Date.now() + ahead_ms;

const clockTime = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const clockSeconds = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dayTime = new Intl.DateTimeFormat(undefined, { weekday: "short", hour: "2-digit", minute: "2-digit" });
const dateTime = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

export const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;
export const long = (iso) => whole.format(new Date(iso));

export function clock(iso, seconds = false) {
  const then = new Date(iso);
  const days = Math.abs(then - now()) / 86_400_000;
  if (then.toDateString() === new Date(now()).toDateString()) return (seconds ? clockSeconds : clockTime).format(then);
  return (days < 6 ? dayTime : dateTime).format(then);
}

export function span(seconds) {
  if (seconds < 1) return `${seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129_600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} days`;
}

function wordsUntil(iso) {
  const left = (Date.parse(iso) - now()) / 1000;
  if (left <= 0) return "now";
  if (left < 90) return `in ${Math.ceil(left)} s`;
  if (left < 5400) return `in ${Math.round(left / 60)} min`;
  return `at ${clock(iso)}`;
}

function wordsSince(iso) {
  const gone = (now() - Date.parse(iso)) / 1000;
  return gone < 1 ? "just now" : `${span(gone)} ago`;
}

const ways = { until: wordsUntil, since: wordsSince, for: (iso) => span(Math.max(0, Math.floor((now() - Date.parse(iso)) / 1000) || 0.1)) };

// A time that counts down, or up, by itself.
export function ticking(way, iso) {
  return h("time", { datetime: iso, title: long(iso), "data-way": way }, ways[way](iso));
}

export function tick() {
  for (const each of document.querySelectorAll("time[data-way]")) {
    const words = ways[each.dataset.way](each.getAttribute("datetime"));
    if (each.textContent !== words) each.textContent = words;
  }
}
