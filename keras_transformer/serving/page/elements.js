// Small elements that several views share.
import { t } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element: h("p", { class: "note" }, "text", child, ...). */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** A token with its spaces and line ends made visible. */
export function shown(token) {
  return token.replace(/[▁Ġ ]/g, "␣").replace(/[\nĊ]/g, "↵").replace(/^␣(?=[^␣])/, "\u2009");
}

export function percent(p) {
  return p >= 0.9995 ? "100%" : p < 0.0005 ? "0%" : `${(100 * p).toFixed(1)}%`;
}

/** A slider with its name and value; `changed(value)` is called while it moves, or "change": after. */
export function slider(name, options, value, changed, event = "input") {
  const output = h("output", {}, String(value));
  const input = h("input", { type: "range", ...options, value, "aria-label": name });
  input.addEventListener("input", () => (output.textContent = input.value));
  input.addEventListener(event, () => changed(Number(input.value)));
  return h("label", { class: "slider" }, name, input, output);
}

/** Buttons of which one is pressed. */
export function choice(label, entries, value, changed) {
  const buttons = entries.map(([key, name, kind]) =>
    h("button", {
      type: "button",
      class: kind,
      "aria-pressed": String(key === value),
      onclick: () => {
        for (const [n, button] of buttons.entries())
          button.setAttribute("aria-pressed", String(entries[n][0] === key));
        changed(key);
      },
    }, name));
  return h("div", { class: "choice", role: "group", "aria-label": label }, buttons);
}

/** Names with bars as long as their probabilities; with `choose`, each is a button. */
export function bars(rows, label, choose) {
  const items = rows.map((row) => {
    const parts = [
      h("span", { class: "name" }, row.name),
      h("span", { class: "track" }, h("span", { class: "bar" })),
      h("span", { class: "value" }, percent(row.probability)),
    ];
    parts[1].firstChild.style.cssText = `display:block;width:${(100 * row.probability).toFixed(2)}%`;
    const chosen = choose && row.text !== null;
    if (!choose) return h("li", {}, parts);
    return h("li", {}, h("button", { type: "button", disabled: !chosen, onclick: () => choose(row) }, parts));
  });
  return h("ul", { class: "bars", "aria-label": label }, items);
}

/** Arrow keys move the focus among elements: one stop of the tab key for all. */
export function roving(elements, next) {
  elements.forEach((element, n) => {
    element.setAttribute("tabindex", n ? "-1" : "0");
    element.addEventListener("keydown", (event) => {
      const found = next(n, event.key);
      if (found === null || found === undefined || !elements[found]) return;
      event.preventDefault();
      elements.forEach((each) => each.setAttribute("tabindex", "-1"));
      elements[found].setAttribute("tabindex", "0");
      elements[found].focus();
    });
  });
}

/** For `roving`: the elements in a row. */
export function inLine(n, key) {
  const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[key];
  return step ? n + step : key === "Home" ? 0 : null;
}

/** "‘a’ 62%, ‘b’ 21%": the largest weights of a list. */
export function largest(tokens, weights, most = 4) {
  const order = [...weights.keys()].filter((n) => weights[n] > 0.02);
  order.sort((a, b) => weights[b] - weights[a]);
  const list = order.slice(0, most).map((n) => `“${shown(tokens[n]).trim()}” ${Math.round(100 * weights[n])}%`);
  return list.join(", ") || t("nobody");
}
