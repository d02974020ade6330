// All requests of the server, from its own openapi.json, each with an example to change and send.
import { h } from "../elements.js";

const { paths, components } = await (await fetch("../openapi.json")).json();
const key = document.querySelector("#key");
document.querySelector("#access").addEventListener("submit", (event) => event.preventDefault());

/** The schema of a JSON body; undefined: the request has none. */
function schemaOf(operation) {
  const schema = operation.requestBody?.content["application/json"].schema;
  return schema?.$ref ? components.schemas[schema.$ref.split("/").at(-1)] : schema;
}

/** "integer from 1 to 16 or null, default null. Beam width; 1: greedy." */
function about(field, required) {
  const kinds = (field.anyOf ?? [field]).map(({ type, items, minimum, maximum }) => [
    type,
    items && `of ${items.type}`,
    minimum !== undefined && `from ${minimum}`,
    maximum !== undefined && `to ${maximum}`,
  ].filter(Boolean).join(" "));
  const value = required ? "required" : `default ${JSON.stringify(field.default ?? null)}`;
  return `${kinds.join(" or ")}, ${value}. ${field.description ?? ""}`;
}

function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 1);
  } catch {
    return text; // of Prometheus, or events
  }
}

function request(path, method, operation) {
  const schema = schemaOf(operation);
  const fields = Object.entries(schema?.properties ?? {}).map(([name, field]) => [
    h("dt", {}, h("code", {}, name)),
    h("dd", {}, about(field, schema.required?.includes(name))),
  ]);
  const address = h("input", { value: path, "aria-label": "Path", spellcheck: "false" });
  const example = schema && JSON.stringify(schema.examples[0], null, 1);
  const body = schema && h("textarea", { "aria-label": "Body", spellcheck: "false" }, example);
  const answer = h("pre", { hidden: true, tabindex: 0, role: "region", "aria-label": "Answer" });

  async function send() {
    const headers = key.value ? { Authorization: `Bearer ${key.value}` } : {};
    if (body) headers["Content-Type"] = "application/json";
    answer.hidden = false;
    answer.textContent = "…";
    try {
      const response = await fetch(`..${address.value}`, { method, headers, body: body?.value });
      answer.textContent = `${response.status} ${indented(await response.text())}`;
    } catch (error) {
      answer.textContent = error.message;
    }
  }

  return h("details", {},
    h("summary", {}, h("code", {}, `${method} ${path}`), operation.description.replaceAll("`", "")),
    fields.length ? h("dl", {}, fields) : null,
    address,
    body,
    h("button", { class: "solid", type: "button", onclick: send }, "Send"),
    answer);
}

const groups = {};
for (const [path, methods] of Object.entries(paths))
  for (const [method, operation] of Object.entries(methods))
    (groups[operation.tags[0]] ??= []).push(request(path, method.toUpperCase(), operation));
for (const [name, requests] of Object.entries(groups))
  document.querySelector("#requests").append(h("section", {}, h("h2", {}, name), requests));
