// How is the service asked? With the cookie, relative to where this file came from; each change has the word that proves it ours.

const base = new URL("../api/v1/", import.meta.url);
let csrf = "";

export class SignedOut extends Error {}

export function keepToken(session) {
  csrf = session.csrf ?? "";
}

export async function ask(method, path, body) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (csrf && method !== "GET") headers["X-Csrf-Token"] = csrf;
  let answer;
  try {
    answer = await fetch(new URL(path, base), {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body), credentials: "same-origin", cache: "no-store",
    });
  } catch {
    throw new Error("The service does not answer.");
  }
  const said = (answer.headers.get("content-type") ?? "").includes("json") ? await answer.json() : null;
  if (answer.ok) return said;
  const detail = said?.errors?.length ? said.errors.join("; ") : said?.detail || `${answer.status} ${answer.statusText}`;
  throw answer.status === 401 ? new SignedOut(detail) : new Error(detail);
}

export function listen(path) {
  return new EventSource(new URL(path, base));
}
