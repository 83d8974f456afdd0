// What is shown of the service itself: its tree with restarts and crashes, and what happens, as it happens.

import { $, draw, h, plural } from "./dom.js";
import { clock, long } from "./times.js";

const KEPT = 200;
const happened = [];
let waits = false;

export function update(overview) {
  const { health } = overview;
  $("tree-sum").textContent = `${plural(health.children, "child", "children")}, ${plural(health.restarts, "restart")}`;
  draw($("tree"), overview.tree, (tree) => tree.map(branch));
}

function branch(child) {
  return h("li", { class: `is-${child.state}` },
    h("p", {}, h("i", { class: "dot", "aria-hidden": "true" }), h("b", {}, child.name), h("span", { class: "muted" }, ` ${child.state.replace("_", " ")}`),
      child.restarts > 0 && h("span", { class: "times" }, plural(child.restarts, "restart"))),
    child.last_crash && h("p", { class: "error" }, child.last_crash),
    child.children.length > 0 && h("ul", {}, child.children.map(branch)));
}

export function hear(event) {
  happened.unshift(event);
  happened.length = Math.min(happened.length, KEPT);
  if (waits || $("view-system").hidden) return;
  waits = true;
  requestAnimationFrame(() => { waits = false; show(); });
}

export function show() {
  draw($("events"), happened.map((each) => each.id), () => happened.length ? happened.map(line) : h("li", { class: "empty" }, "Nothing has happened since this page was opened."));
}

function line(event) {
  const facts = Object.entries(event.facts).filter(([, value]) => value !== null && value !== "").map(([name, value]) => h("span", {}, h("i", {}, name), ` ${plain(value)} `));
  return h("li", { class: `level-${event.level}` },
    h("time", { datetime: event.at, title: long(event.at) }, clock(event.at, true)), h("b", {}, event.name), h("span", { class: "facts" }, facts));
}

function plain(value) {
  if (typeof value === "number") return String(Math.round(value * 1000) / 1000);
  return Array.isArray(value) ? value.join(", ") : String(value);
}
