// Questions to the server. Paths are relative, so the page also works below a sub-path.

let key = "";

/** The API key to send from now on. */
export function useKey(given) {
  key = given;
}

export async function models() {
  return read(await fetch("api/models", { headers: headers() }));
}

function headers() {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

const BUSY = [429, 503]; // a full queue, or programs that are still being compiled

/** The answer of a route, such as ask("beams", {model, text}); `signal` may abort it. */
export async function ask(route, question, signal) {
  const request = {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers() },
    body: JSON.stringify(question),
    signal,
  };
  let response = await fetch(`api/${route}`, request);
  while (BUSY.includes(response.status)) {
    await new Promise((resolve) => setTimeout(resolve, 1000));
    response = await fetch(`api/${route}`, request);
  }
  return read(response);
}

async function read(response) {
  const body = await response.json().catch(() => null);
  if (response.ok) return body;
  const detail = body?.detail ?? body?.error ?? response.statusText;
  const message = Array.isArray(detail) ? detail.map((each) => each.msg).join("; ") : detail;
  throw Object.assign(new Error(message?.message ?? message), { status: response.status });
}
