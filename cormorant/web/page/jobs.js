// What is shown of durable jobs: the newest, why each waits, and the two things that a person may do.

import { ask } from "./api.js";
import { $, does, draw, h, plural, say } from "./dom.js";
import { clock, long, ticking } from "./times.js";

let pages = 1;
let again;

export function updateSum(counts) {
  const parts = [
    counts.running && `${counts.running} running`,
    counts.pending && `${counts.pending} pending`,
    counts.retryable && `${counts.retryable} to be tried again`,
    counts.failed && `${counts.failed} failed`,
  ].filter(Boolean);
  const words = parts.join(", ");
  if ($("jobs-sum").textContent !== words) showSoon();
  $("jobs-sum").textContent = words;
}

export async function show() {
  const state = $("jobs-state").value;
  const jobs = [];
  let before = null;
  for (let page = 0; page < pages; page += 1) {
    const words = new URLSearchParams({ limit: "50", ...(state && { state }), ...(before && { before }) });
    const said = await ask("GET", `jobs?${words}`);
    jobs.push(...said.jobs);
    before = said.next_before;
    if (!before) break;
  }
  $("jobs-more").hidden = !before;
  draw($("jobs-list"), jobs, list);
}

// Many may end in a second; looking twice in one is enough.
export function showSoon() {
  again ??= setTimeout(() => { again = undefined; if (!$("view-jobs").hidden) show().catch(() => {}); }, 500);
}

export function prepare() {
  $("jobs-state").addEventListener("change", does(() => { pages = 1; return show(); }));
  $("jobs-more").addEventListener("click", does(() => { pages += 1; return show(); }));
}

function list(jobs) {
  if (!jobs.length) return h("p", { class: "empty" }, "No jobs.");
  return h("table", {},
    h("thead", {}, h("tr", {}, ["Job", "State", "When", "Tries", ""].map((name) => h("th", { scope: "col" }, name || h("span", { class: "unseen" }, "Acts"))))),
    h("tbody", {}, jobs.map(row)));
}

function row(job) {
  const error = job.last_errors.at(-1);
  return h("tr", { class: `job is-${job.state}` },
    h("td", { class: "what" }, h("b", {}, job.kind), ` #${job.id}`, h("span", { class: "payload" }, JSON.stringify(job.payload).slice(0, 160)),
      error && h("span", { class: "error" }, errorWords(error))),
    h("td", {}, h("span", { class: "state" }, job.held ? "held" : job.state)),
    h("td", { class: "when" }, when(job)),
    h("td", { class: "tries" }, `${job.attempts} of ${job.max_attempts}`),
    h("td", { class: "acts" }, act(job)));
}

function errorWords(error) {
  return [error.type ?? error.kind, error.message ?? error.error].filter(Boolean).join(": ") || JSON.stringify(error);
}

function when(job) {
  if (job.finished_at) return h("time", { datetime: job.finished_at, title: long(job.finished_at) }, clock(job.finished_at, true));
  if (job.state === "running") return ["for ", ticking("for", job.claimed_at ?? job.enqueued_at)];
  return ticking("until", job.run_at);
}

function act(job) {
  const retries = job.state === "failed" || job.state === "cancelled";
  if (!retries && job.finished_at) return null;
  const what = retries ? "retry" : "cancel";
  return h("button", { type: "button", class: "plain", "data-key": `${what}-${job.id}`, "aria-label": `${what} job ${job.id}`, onclick: does(async () => {
    await ask("POST", `jobs/${job.id}/${what}`);
    say(retries ? `Job ${job.id} starts afresh.` : `Job ${job.id} is cancelled.`);
    document.dispatchEvent(new Event("changed"));
    await show();
  }) }, retries ? "Retry" : "Cancel");
}
