// Talking to the server: answers, server-sent events, and coming back when it is asked for.

import { bytes } from "./state.js";

const post = (body, signal) =>
  body ? { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal } : { signal };

export async function ask(path, body, signal, retries = 5) {
  let response;
  try {
    response = await fetch(path, post(body, signal));
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is `sensewise serve` still running?");
  }
  if (response.ok) return response;
  if (response.status === 503 && retries > 0) {
    const seconds = Number(response.headers.get("Retry-After")) || 2;
    await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
    signal?.throwIfAborted();
    return ask(path, body, signal, retries - 1);
  }
  const answer = await response.json().catch(() => ({}));
  throw new Error(answer.error ?? `The server answered ${response.status}.`);
}

/** Watch an acquisition: `seen(name, content)` is called for each event as it comes. */
export async function watch(body, signal, seen) {
  const reader = (await ask("api/stream", body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const [, name, content] = /^event: (\w+)\ndata: (.*)$/.exec(part);
      const answer = JSON.parse(content);
      if (name === "failure") throw new Error(answer.error);
      seen(name, name === "ending" ? answer : decode(answer));
    }
  }
}

function decode(answer) {
  const found = { ...answer };
  for (const name of ["target", "values", "picture", "doubt"]) if (name in answer) found[name] = bytes(answer[name]);
  if ("actions" in answer) found.actions = new Int32Array(bytes(answer.actions).buffer);
  return found;
}
