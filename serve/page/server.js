// Requests to the server, its key, and its streams.

import { byId, opened, write } from "./elements.js";

const LOST = "The server does not answer. Is octavo serve still running?";
const KEY = "octavo.key";

/** Return the sentence that a refusal comes with. */
async function sentenceOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `The server answered ${response.status} ${response.statusText}`.trim() + ".";
  }
}

/** Request a path; ask for the key where the server wants one. Throws an Error that has the server's own sentence. */
export async function call(path, options = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const headers = key ? { ...options.headers, Authorization: `Bearer ${key}` } : options.headers;
    let response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch (error) {
      throw error.name === "AbortError" ? error : new Error(LOST);
    }
    if (response.ok) return response;
    const sentence = await sentenceOf(response);
    if (response.status === 401 && (sessionStorage.getItem(KEY) !== key || (await askForKey(Boolean(key))))) continue;
    throw Object.assign(new Error(sentence), { status: response.status });
  }
}

/** Request an object. */
export const fetched = async (path, options) => (await call(path, options)).json();

let keyAsked = null;

/** Ask for the server's key, once for all requests that wait for it. Resolves to whether there is one. */
function askForKey(refused) {
  keyAsked ??= (async () => {
    write(byId("key-error"), refused ? "The server does not know this key." : "");
    byId("key").value = "";
    const given = (await opened(byId("ask-key"))) === "use" && byId("key").value.trim();
    if (given) sessionStorage.setItem(KEY, given);
    keyAsked = null;
    return Boolean(given);
  })();
  return keyAsked;
}

/** Yield the objects of a stream of server-sent events, up to [DONE]. */
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      buffer += value;
      const lines = buffer.split(/\r?\n/);
      buffer = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data:")) continue;
        const data = line.slice(5).trim();
        if (data === "[DONE]") return;
        yield JSON.parse(data);
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // after an error the server need not continue
  }
}
