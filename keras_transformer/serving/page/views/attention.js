// Attention as arcs and as maps per layer and head, and answers without some heads or the mask.
import { ask } from "../api.js";
import { choice, h, inLine, largest, percent, roving, s, shown } from "../elements.js";
import { t } from "../words.js";

const ROW = 28; // height of a token, as in style.css

export function open(body, { model, settings, run, announce, text }) {
  settings.off ??= {};
  settings.head ??= {};
  settings.lookAhead ??= true;
  const effects = h("dl", { class: "effects", "aria-live": "polite" });
  const result = h("div", {});
  body.append(effects, result);
  let whole = null; // the answer of all heads, and its text

  function clear() {
    effects.replaceChildren();
    result.replaceChildren(h("p", { class: "note" }, t("empty")));
  }

  function update(text) {
    run(async (signal) => {
      const { off, lookAhead } = settings;
      const changes = { off, look_ahead: lookAhead };
      const isWhole = lookAhead && !count(off);
      const found = await ask("attention", { model: model.name, text, ...changes }, signal);
      if (whole?.text !== text) whole = { text, answer: await answerOf(text, {}, signal, isWhole ? found : null) };
      const damaged = isWhole ? null : await answerOf(text, changes, signal, found);
      drawEffects(whole.answer, damaged);
      draw(found);
    });
  }

  /** What the model says: words with names to compare by, and probabilities where it has them. */
  async function answerOf(text, changes, signal, found) {
    const question = { model: model.name, text, ...changes };
    if (model.kind === "translate") {
      const { answer, tokens } = found ?? (await ask("attention", question, signal));
      return { text: answer, parts: tokens.target.filter((token) => token !== "</s>").map((name) => ({ name })) };
    }
    if (model.kind === "generate") {
      const { tokens } = await ask("next", { ...question, number: 5 }, signal);
      return { parts: tokens.map((each) => ({ name: shown(each.token), p: each.probability })) };
    }
    delete question.look_ahead; // which models of labels lack
    const rows = await ask("labels", question, signal);
    if (model.kind === "tag") return { parts: rows.map(({ word, labels: [best] }) => ({ word, name: best.label, p: best.probability })) };
    return { parts: rows.flatMap(({ labels }) => labels.slice(0, 5).map((each) => ({ name: each.label, p: each.probability }))) };
  }

  function drawEffects(before, after) {
    const rows = [h("dt", {}, t("withAll")), h("dd", { lang: "" }, spoken(before, null))];
    if (after) {
      const same = before.parts.length === after.parts.length && before.parts.every((part, n) => part.name === after.parts[n].name);
      const without = [!settings.lookAhead && t("unmasked"), count(settings.off) && t("withOff", { count: count(settings.off) })];
      const verdict = same ? (after.text === undefined ? "shifted" : "same") : "changed";
      rows.push(
        h("dt", {}, without.filter(Boolean).join(" · ")),
        h("dd", { lang: "" }, spoken(after, before)),
        h("dd", { class: "verdict" }, t(verdict), " ", h("button", { type: "button", class: "plain", onclick: allOn }, t("allOn"))));
      announce(after.text ?? after.parts.map((part) => part.name).join(" "));
    } else rows.push(h("dd", { class: "verdict" }, t("offHint")));
    effects.replaceChildren(...rows);
  }

  function allOn() {
    settings.off = {};
    settings.lookAhead = true;
    update(text());
  }

  /** Switches the look-ahead mask, and shows the maps on which it can be seen. */
  function switchMask() {
    settings.lookAhead = !settings.lookAhead;
    settings.kind = "decoder";
    result.querySelector("[data-switch=mask]").setAttribute("aria-checked", String(settings.lookAhead)); // before the answer
    update(text());
  }

  function draw({ tokens, maps }) {
    const kinds = ["encoder", "decoder", "cross"].filter((kind) => maps.some((map) => map.kind === kind));
    if (!kinds.includes(settings.kind)) settings.kind = kinds.at(-1);
    const focused = document.activeElement?.dataset?.switch;
    const below = h("div");
    const drawKind = () => {
      const { kind } = settings;
      const shownMaps = maps.filter((map) => map.kind === kind);
      const sides = sidesOf(kind, tokens);
      settings.head[kind] ??= { layer: 0, head: 0 };
      const one = h("div", { class: "one-head" });
      const buttons = [];
      const show = (layer, head) => {
        settings.head[kind] = { layer, head };
        buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.head === `${layer}/${head}`)));
        one.replaceChildren(...oneHead(shownMaps[layer], head, sides));
      };
      const layers = shownMaps.map((map, layer) =>
        h("div", { class: "layer" }, h("h3", {}, t("layer", { layer: map.layer })),
          h("div", { class: "row" }, map.weights.map((weights, head) => headOf(map, weights, layer, head, buttons, show)))));
      below.className = `kind-${kind}`;
      below.replaceChildren(h("p", { class: "note" }, t(`kindNotes.${kind === "decoder" && !settings.lookAhead ? "unmasked" : kind}`)), h("div", { class: "heads" }, layers), one);
      const { layer, head } = settings.head[kind];
      show(layer, head);
      paint(below);
    };
    const names = kinds.map((kind) => [kind, t(`kinds.${kind}`), `kind-${kind}`]);
    const chooser = choice(t("tabs.attention"), names, settings.kind, (kind) => {
      settings.kind = kind;
      drawKind();
    });
    const mask = kinds.includes("decoder")
      ? h("button", { type: "button", role: "switch", class: "kind-decoder", "aria-checked": String(settings.lookAhead), "data-switch": "mask", onclick: switchMask }, t("lookAhead"), h("i"))
      : null;
    result.replaceChildren(h("div", { class: "controls" }, chooser, mask), below);
    drawKind();
    if (focused) result.querySelector(`[data-switch="${CSS.escape(focused)}"]`)?.focus();
  }

  /** A head among all: its map in small, and a switch. */
  function headOf(map, weights, layer, head, buttons, show) {
    const isOff = settings.off[map.name]?.includes(head) ?? false;
    const where = { layer: map.layer, head: head + 1 };
    const canvas = h("canvas", { width: weights[0].length, height: weights.length });
    canvas.weights = weights;
    const button = h("button", { type: "button", class: "map", "data-head": `${layer}/${head}`, "aria-label": t("headOf", where), onclick: () => show(layer, head) }, canvas);
    buttons.push(button);
    const toggle = h("button", {
      type: "button", role: "switch", "aria-checked": String(!isOff), "aria-label": t("switchOf", where), "data-switch": `${map.name}/${head}`,
      onclick: () => {
        const now = new Set(settings.off[map.name] ?? []);
        if (!now.delete(head)) now.add(head);
        settings.off = { ...settings.off, [map.name]: [...now] };
        toggle.setAttribute("aria-checked", String(!now.has(head))); // before the server answers
        update(text());
      },
    }, t("head", where), h("i"));
    return h("div", { class: isOff ? "head off" : "head" }, button, toggle);
  }

  return { update, clear };
}

function count(off) {
  return Object.values(off).reduce((sum, heads) => sum + heads.length, 0);
}

/** The tokens that read, and those that are read. */
function sidesOf(kind, tokens) {
  if (kind === "cross") return [tokens.target, tokens.source];
  const own = kind === "decoder" && tokens.before ? tokens.before : tokens.source;
  return [own, own];
}

/** An answer in words; what differs from `before` is marked. */
function spoken(answer, before) {
  const texts = answer.parts.map((part, n) => {
    const changed = before && before.parts[n]?.name !== part.name ? "changed" : null;
    const written = answer.text === undefined ? part.name : part.name.replace(/^[▁Ġ]/, "");
    const space = answer.text !== undefined && n > 0 && /^[▁Ġ]/.test(part.name) ? " " : "";
    const word = part.word ? `${part.word} ` : "";
    const p = part.p === undefined ? null : h("small", {}, ` ${percent(part.p)}   `);
    return [space, word, h("span", { class: changed }, written), p];
  });
  return texts.length ? texts : ["–"];
}

function paint(below) {
  const color = getComputedStyle(below).getPropertyValue("--kind");
  for (const canvas of below.querySelectorAll("canvas")) {
    const context = canvas.getContext("2d");
    context.fillStyle = color;
    canvas.weights.forEach((row, i) => row.forEach((weight, j) => {
      context.globalAlpha = weight;
      context.fillRect(j, i, 1, 1);
    }));
  }
}

/** One head as arcs and as a map; pointing at one shows the same in the other. */
function oneHead(map, head, [rows, columns]) {
  const weights = map.weights[head];
  const where = { layer: map.layer, head: head + 1, rows: rows.length, columns: columns.length };
  const readout = h("p", { class: "readout", "aria-live": "polite" }, t("arcHint"));
  const left = rows.map((token) => h("button", { type: "button", class: "token" }, shown(token)));
  const right = columns.map((token) => h("button", { type: "button", class: "token" }, shown(token)));
  const height = Math.max(rows.length, columns.length) * ROW;
  const lines = [];
  weights.forEach((row, i) => row.forEach((weight, j) => {
    if (weight < 0.02) return;
    const [a, b] = [(i + 0.5) * ROW, (j + 0.5) * ROW];
    const path = s("path", { d: `M0 ${a}C50 ${a} 50 ${b} 100 ${b}`, "stroke-width": (0.8 + 4 * weight).toFixed(2), "vector-effect": "non-scaling-stroke" });
    lines.push({ i, j, weight, path });
  }));
  const arcs = s("svg", { viewBox: `0 0 100 ${height}`, height, preserveAspectRatio: "none", "aria-hidden": "true" }, lines.map((line) => line.path));
  const matrix = matrixOf(weights, rows, columns, t("map", where));

  const show = (i, j) => {
    for (const line of lines) {
      const chosen = (i === null || line.i === i) && (j === null || line.j === j);
      line.path.setAttribute("stroke-opacity", chosen ? Math.max(0.12, line.weight) : 0.04);
    }
    const strengths = (tokens, of, at) => tokens.forEach((token, n) => {
      token.style.setProperty("--strength", of === null ? 0 : of(n));
      token.classList.toggle("at", n === at);
    });
    strengths(left, j === null ? null : (n) => weights[n][j], i);
    strengths(right, i === null ? null : (n) => weights[i][n], j);
    matrix.mark(i, j);
    if (i !== null && j !== null) readout.textContent = t("cell", { row: shown(rows[i]).trim(), column: shown(columns[j]).trim(), weight: percent(weights[i][j]) });
    else if (i !== null) readout.textContent = t("reads", { token: shown(rows[i]).trim(), list: largest(columns, weights[i]) });
    else if (j !== null) readout.textContent = t("isRead", { token: shown(columns[j]).trim(), list: largest(rows, weights.map((row) => row[j])) });
    else readout.textContent = t("arcHint");
  };
  show(null, null);
  left.forEach((button, i) => ["pointerenter", "focus", "click"].forEach((event) => button.addEventListener(event, () => show(i, null))));
  right.forEach((button, j) => ["pointerenter", "focus", "click"].forEach((event) => button.addEventListener(event, () => show(null, j))));
  roving(left, inLine);
  roving(right, inLine);
  matrix.listen(show);
  const frame = h("div", { class: "arcs", onpointerleave: () => show(null, null) },
    h("div", { class: "column" }, h("h3", {}, t("queries")), left),
    arcs,
    h("div", { class: "column" }, h("h3", {}, t("keys")), right));
  const title = h("h2", {}, t("headOf", where));
  return [h("div", {}, title, readout, frame), h("div", { class: "scroll" }, matrix.svg)];
}

/** The weights as squares: rows read, columns are read. */
function matrixOf(weights, rows, columns, label) {
  const wide = (tokens) => 12 + Math.max(...tokens.map((token) => [...shown(token)].reduce((sum, c) => sum + (c > "⺀" ? 14 : 8), 0)));
  const [x0, y0] = [wide(rows), wide(columns)];
  const room = Math.min(440, document.documentElement.clientWidth - x0 - 50);
  const cell = Math.max(9, Math.min(26, Math.floor(room / Math.max(rows.length, columns.length))));
  const size = Math.min(13, cell + 1);
  const [width, height] = [x0 + columns.length * cell + 4, y0 + rows.length * cell + 4];
  const rowTexts = rows.map((token, i) =>
    s("text", { x: x0 - 6, y: y0 + (i + 0.5) * cell + size / 3, "text-anchor": "end" }, shown(token)));
  const columnTexts = columns.map((token, j) =>
    s("text", { transform: `translate(${x0 + (j + 0.5) * cell + size / 3} ${y0 - 6}) rotate(-90)` }, shown(token)));
  for (const each of [...rowTexts, ...columnTexts]) each.style.fontSize = `${size}px`;
  const cells = weights.flatMap((row, i) => row.map((weight, j) =>
    s("rect", { class: "cell", x: x0 + j * cell, y: y0 + i * cell, width: cell, height: cell, "fill-opacity": weight })));
  const band = s("rect", { class: "band", visibility: "hidden" });
  const svg = s("svg", { class: "matrix", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, cells, rowTexts, columnTexts, band);
  return {
    svg,
    mark(i, j) {
      rowTexts.forEach((each, n) => each.classList.toggle("at", n === i));
      columnTexts.forEach((each, n) => each.classList.toggle("at", n === j));
      band.setAttribute("visibility", i === null && j === null ? "hidden" : "visible");
      const box = {
        x: x0 + (j ?? 0) * cell, width: j === null ? columns.length * cell : cell,
        y: y0 + (i ?? 0) * cell, height: i === null ? rows.length * cell : cell,
      };
      for (const [name, value] of Object.entries(box)) band.setAttribute(name, value);
    },
    listen(show) {
      cells.forEach((each, n) => {
        const [i, j] = [Math.floor(n / columns.length), n % columns.length];
        for (const event of ["pointerenter", "click"]) each.addEventListener(event, () => show(i, j));
      });
      svg.addEventListener("pointerleave", () => show(null, null));
    },
  };
}
