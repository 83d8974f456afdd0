// What is shown of the accounts: what is spent, when the next request goes and why not now, who spent it, what runs and was.

import { ask } from "./api.js";
import { $, does, draw, h, plural, say } from "./dom.js";
import { clock, long, span, ticking } from "./times.js";

const WAITS = {
  breaker: "it failed several times in a row",
  cooldown: "the site told us to slow down",
  in_flight: "a request is under way",
  spacing: "spacing",
  pace: "pace",
  minute: "the limit per minute",
  hour: "the limit per hour",
  day: "the daily limit",
  reset: "the daily limit",
  month: "the monthly limit",
};
const SENTENCES = { breaker: true, cooldown: true };
const GATES = {
  enabled: "enabled", stopped: "credentials", paused: "pause", breaker: "breaker", cooldown: "cooldown", in_flight: "in flight",
  spacing: "spacing", pace: "pace", minute: "minute", hour: "hour", day: "day", reset: "day", month: "month",
};
const STATES = { paused: "paused", stopped: "stopped", disabled: "disabled", gone: "given up" };
const ENDINGS = {
  found: "found", failed: "failed", refused: "refused", rate_limited: "not asked", cancelled: "cancelled", shut_down: "shut down",
  deduplicated: "shared",
};
const SHADES = 6;

// Who is asked when a person searches everywhere; others know artists, peers or prices.
export const isSearched = (account) => ["torznab", "newznab"].includes(account.kind);
export const clientName = (name) => name || "here";
export const queryWords = (query) => query || "what is new";
const open = new Set();

// Why a request waits and until when, in a few words.
export function waitWords(about) {
  if (about.state in STATES) return [STATES[about.state]];
  const because = WAITS[about.gate] ?? about.gate;
  if (!about.gate) return ["now"];
  if (about.gate === "in_flight") return ["after the one under way"];
  if (!about.opens_at) return ["nobody knows when: ", because];
  return [ticking("until", about.opens_at), h("span", { class: "because" }, ` ${about.gate in SENTENCES ? "because" : "because of"} ${because}`)];
}

export function drawAccounts(overview, change) {
  draw($("needs"), overview.needs_you, (needs) => needs.map((need) => needLine(need, change)));
  $("needs").hidden = overview.needs_you.length === 0;
  const spent = overview.accounts.reduce((sum, account) => sum + account.queries_today, 0);
  $("accounts-sum").textContent = overview.accounts.length ? `${plural(spent, "query", "queries")} in 24 hours` : "";
  draw($("accounts"), [overview.accounts, [...open]], ([accounts]) => accounts.length ? accounts.map((each) => accountRow(each, change)) : nobody());
  drawNow(overview);
  draw($("spent"), overview.clients, spentBy);
  draw($("lately"), overview.history, lately);
  draw($("where"), overview.accounts.filter(isSearched).map((account) => account.name), whereOptions);
}

function nobody() {
  return h("div", { class: "empty" },
    h("p", {}, "No accounts yet. Add one where the service runs:"),
    h("pre", {}, "cormorant sources add NAME URL"),
    h("p", {}, "or as ", h("code", {}, "[sources.NAME]"), " in config.toml."));
}

function needLine(need, change) {
  return h("div", { class: "need" },
    h("p", {}, h("strong", {}, need.name), ` ${need.why}`, !need.why.includes("reset") && h("span", { class: "muted" }, ` ${need.remedy}`)),
    need.what === "source" && h("button", { type: "button", "data-key": `mend-${need.name}`, onclick: does(() => change(need.name, "reset")) }, "Reset"),
    need.what === "download" && h("a", { href: "#finds" }, "Decide"));
}

function accountRow(account, change) {
  const isOpen = open.has(account.name);
  const queries = account.quotas.filter((quota) => quota.lane === "query");
  const grabs = account.quotas.filter((quota) => quota.lane === "grab");
  const isPaused = account.state === "paused";
  const key = (what) => `${what}-${account.name}`;
  return h("article", { class: `account is-${account.state} by-${account.gate}`, "aria-label": account.name },
    h("div", { class: "who" },
      h("h3", {}, h("i", { class: "dot", "aria-hidden": "true" }), account.name),
      h("p", { class: "muted" }, account.host)),
    h("p", { class: "next" }, h("span", { class: "label" }, account.state in STATES ? "it is " : "next request "), h("span", { class: "when" }, waitWords(account)),
      account.waiting > 0 && h("span", { class: "queue" }, plural(account.waiting, "waits", "wait")),
      account.running > 0 && h("span", { class: "queue runs" }, plural(account.running, "runs", "run"))),
    h("div", { class: "quotas" },
      queries.length ? queries.map(bar) : h("p", { class: "unlimited" }, `${plural(account.queries_today, "query", "queries")} in 24 hours, no limit set`),
      grabs.map(bar)),
    h("div", { class: "acts" },
      h("button", { type: "button", class: "plain", "data-key": key("why"), "aria-expanded": String(isOpen), onclick: () => { toggle(account.name); change(null); } }, "Why"),
      (account.state === "stopped" || account.failures_in_a_row > 0) &&
        h("button", { type: "button", class: "plain", "data-key": key("reset"), onclick: does(() => change(account.name, "reset")) }, "Reset"),
      h("button", { type: "button", class: "plain", "data-key": key("pause"), onclick: does(() => change(account.name, isPaused ? "resume" : "pause")),
        "aria-label": `${isPaused ? "Resume" : "Pause"} ${account.name}` }, isPaused ? "Resume" : "Pause")),
    isOpen && why(account));
}

function toggle(name) {
  if (!open.delete(name)) open.add(name);
}

function bar(quota) {
  const part = Math.min(1, quota.used / quota.limit);
  const level = part >= 1 ? "full" : part >= 0.8 ? "high" : "calm";
  const what = quota.lane === "grab" ? "grabs" : "queries";
  const words = `${quota.used} of ${quota.limit} ${what} per ${quota.per}`;
  const kept = quota.kept ? `, ${quota.kept} kept for people` : "";
  return h("div", { class: `quota ${quota.lane} ${level}`, title: `${words}${kept}${quota.is_stated ? ", as the site states" : ""}` },
    h("span", { class: "per" }, quota.lane === "grab" ? `grabs / ${quota.per}` : quota.per),
    h("span", { class: "bar", role: "meter", "aria-label": words, "aria-valuemin": 0, "aria-valuemax": quota.limit, "aria-valuenow": Math.min(quota.used, quota.limit),
      vars: { used: part, kept: quota.kept / quota.limit } }),
    h("span", { class: "of" }, h("b", {}, quota.used.toLocaleString()), `\u2009/\u2009${quota.limit.toLocaleString()}`));
}

function why(account) {
  const gates = account.gates.map((gate) => h("li", {},
    h("b", {}, GATES[gate.name] ?? gate.name), h("span", {}, gate.why), gate.opens_at ? h("span", { class: "until" }, `until ${clock(gate.opens_at, true)}`) : h("span", { class: "until" }, "until somebody acts, or it ends")));
  const facts = [
    `at least ${span(account.spacing_s)} between requests`,
    account.pace_s > account.spacing_s && `${span(account.pace_s)} for what nobody waits for`,
    account.in_flight_max > 1 && `${account.in_flight_max} at once`,
    account.stated.length > 0 && `the site states ${account.stated.map((each) => `${each.name.replaceAll("_", " ")} ${each.value}`).join(", ")}`,
    account.last_success_at && `answered last ${clock(account.last_success_at)}`,
    account.failures_in_a_row > 0 && `failed ${account.failures_in_a_row} times in a row`,
  ].filter(Boolean);
  return h("div", { class: "why" },
    gates.length ? h("ol", { class: "gates" }, gates) : h("p", {}, "Nothing is in the way: a request of yours goes at once."),
    h("p", { class: "muted" }, facts.join(" · ")));
}

function drawNow(overview) {
  const { running, waiting } = overview;
  const waits = waiting.reduce((sum, group) => sum + group.count, 0);
  $("now-sum").textContent = running.length || waits ? `${running.length} under way, ${waits} waiting` : "";
  draw($("now"), [running, waiting], () => {
    if (!running.length && !waiting.length) return h("li", { class: "empty" }, "Nothing runs, nothing waits.");
    return [...running.map(runningLine), ...waiting.map(waitingLine)];
  });
}

function runningLine(each) {
  return h("li", { class: "runs" },
    h("p", {}, h("b", {}, each.source), ` ${each.lane === "grab" ? "download" : queryWords(each.query)}`),
    h("p", { class: "muted" }, `for ${clientName(each.client)}, `, ticking("for", each.asked_at), each.shared_by > 1 && `, shared by ${each.shared_by}`));
}

function waitingLine(each) {
  const what = each.lane === "grab" ? "download" : queryWords(each.queries[0]);
  return h("li", { class: "waits" },
    h("p", {}, h("b", {}, each.source), ` ${what}`, each.count > 1 && h("span", { class: "times" }, `×${each.count}`)),
    h("p", { class: "muted" }, `for ${clientName(each.client)}, `, waitWords({ ...each, state: each.gate === "paused" ? "paused" : each.gate === "stopped" ? "stopped" : "" })),
    each.why && h("p", { class: "reason" }, each.why));
}

function spentBy(clients) {
  const spenders = clients.filter((client) => client.part > 0);
  if (!spenders.length) return h("p", { class: "empty" }, "Nothing was spent in the last 24 hours.");
  return [
    h("div", { class: "stack", "aria-hidden": "true" }, spenders.map((client, place) => h("i", { class: `shade-${place % SHADES}`, vars: { part: client.part } }))),
    h("ul", { class: "spenders" }, clients.map((client, place) => h("li", {},
      h("i", { class: `shade-${client.part > 0 ? place % SHADES : "none"}`, "aria-hidden": "true" }),
      h("span", { class: "name" }, clientName(client.name)),
      h("span", { class: "muted" }, `${client.queries.toLocaleString()}${client.grabs ? ` + ${plural(client.grabs, "grab")}` : ""}`),
      h("b", {}, `${Math.round(client.part * 100)}\u2009%`)))),
  ];
}

function lately(history) {
  if (!history.length) return h("p", { class: "empty" }, "No request has been made yet.");
  return h("table", {},
    h("thead", { class: "unseen" }, h("tr", {}, ["When", "Where", "What", "For", "Outcome"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, history.slice(0, 14).map((each) => h("tr", { class: `was-${each.status}` },
      h("td", { class: "when" }, h("time", { datetime: each.started_at, title: long(each.started_at) }, clock(each.started_at, true))),
      h("td", { class: "source" }, each.source),
      h("td", { class: "what" }, queryWords(each.query)),
      h("td", { class: "for muted" }, clientName(each.client)),
      h("td", { class: "outcome", title: each.error ?? "" },
        each.status === "found" ? plural(each.results, "result") : ENDINGS[each.status] ?? each.status,
        h("span", { class: "muted" }, ` ${span(each.took_s)}`),
        each.error && h("span", { class: "error" }, each.error))))));
}

function whereOptions(names) {
  return [h("option", { value: "" }, "everywhere"), ...names.map((name) => h("option", { value: name }, name))];
}

export async function changeSource(name, what) {
  await ask("POST", `sources/${encodeURIComponent(name)}/${what}`);
  say(`${name}: ${{ pause: "paused", resume: "goes on", reset: "its trouble is forgotten" }[what]}`);
}
