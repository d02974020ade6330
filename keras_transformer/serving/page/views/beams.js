// Beam search as a tree whose branches show scores and die.
import { ask } from "../api.js";
import { h, roving, s, shown, slider } from "../elements.js";
import { t } from "../words.js";

const ROW = 40;
const STEP = 76;

export function open(body, { model, settings, run, announce, text }) {
  settings.beams ??= 4;
  settings.penalty ??= 0.6;
  const result = h("div", {});
  const again = () => update(text());
  const controls = h("div", { class: "controls" },
    slider(t("beams"), { min: 1, max: 8, step: 1 }, settings.beams, (value) => {
      settings.beams = value;
      again();
    }, "change"),
    slider(t("penalty"), { min: 0, max: 2, step: 0.1 }, settings.penalty, (value) => {
      settings.penalty = value;
      again();
    }, "change"));
  body.append(h("p", { class: "note" }, t("beamsNote")), controls, result);

  function clear() {
    result.replaceChildren(h("p", { class: "note" }, t("empty")));
  }

  function update(text) {
    if (!text.trim()) return clear();
    const question = { model: model.name, text, beams: settings.beams, length_penalty: settings.penalty };
    run(async (signal) => {
      const found = await ask("beams", question, signal);
      draw(found);
      announce(found.answers[0]?.text ?? "");
    });
  }

  function draw({ steps, answers }) {
    const readout = h("p", { class: "readout", "aria-live": "polite" }, t("branchHint"));
    const tree = treeOf(steps, (node) => {
      const values = { step: node.step + 1, state: t(`states.${node.best ? "best" : node.state}`), score: node.score.toFixed(2) };
      readout.replaceChildren(h("q", {}, node.text), h("br"), `${values.state} · ${scoreName(node)} ${values.score}`);
    });
    const legend = h("ul", { class: "legend" },
      ["best", "finished", "alive", "dead"].map((name) => h("li", { class: name }, h("span"), t(`states.${name}`))));
    const rows = answers.map((answer) =>
      h("tr", {}, h("td", {}, answer.text, answer.finished ? null : ` (${t("cut")})`), h("td", {}, answer.score.toFixed(3))));
    const table = h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("answers")), h("th", { scope: "col" }, t("score")))),
      h("tbody", {}, rows));
    const region = { class: "scroll", role: "group", "aria-label": t("tree") };
    result.replaceChildren(h("div", region, tree), legend, readout, table);
  }

  return { update, clear };
}

function scoreName(node) {
  return t(node.state === "finished" ? "normalized" : "probability");
}

/** The nodes in a tree: children, the row of each, and the path to the best answer. */
function arranged(steps) {
  const root = { children: [], step: -1, score: 0, token: "<s>", text: "", state: "alive" };
  let before = [root];
  const nodes = [];
  steps.forEach((branches, step) => {
    const now = branches.map((branch) => {
      const parent = before[branch.parent];
      const node = { ...branch, step, parent, children: [], state: branch.state };
      parent.children.push(node);
      nodes.push(node);
      return node;
    });
    before = now;
  });
  const ends = nodes.filter((node) => node.state === "finished");
  const best = (ends.length ? ends : nodes.filter((node) => node.step === steps.length - 1))
    .reduce((a, b) => (!a || b.score > a.score ? b : a), null);
  for (let node = best; node; node = node.parent) node.best = true;
  const grow = (node) => {
    node.reach = Math.max(node.step, ...node.children.map(grow));
    return node.reach;
  };
  grow(root);
  return { root, nodes, rows: place(root) };
}

/** Gives each node a row: a line of first children the first free one. Returns their number. */
function place(root) {
  const taken = []; // by row: the steps from and to which it is
  const line = (first, from) => {
    const chain = [first];
    // The best path runs straight on top; else the branch that lives longest goes straight on.
    for (let node = first; node; node = node.children[0]) {
      node.children.sort((a, b) => Boolean(b.best) - Boolean(a.best) || b.reach - a.reach || b.score - a.score);
      if (node !== first) chain.push(node);
    }
    const [start, end] = [first.step - 1, chain.at(-1).step];
    let row = from;
    while (taken[row]?.some(([a, b]) => a <= end && start <= b)) row++;
    (taken[row] ??= []).push([start, end]);
    for (const node of chain) node.row = row;
    for (const node of chain.reverse()) for (const child of node.children.slice(1)) line(child, row + 1);
  };
  line(root, 0);
  return taken.length;
}

function treeOf(steps, show) {
  const { root, nodes, rows } = arranged(steps);
  const wide = (node) => Math.max(26, 10 + [...shown(node.token)].reduce((sum, c) => sum + (c > "⺀" ? 15 : 8.6), 0));
  const centers = [34]; // of the steps: each as wide as its longest token
  for (let step = 0; step < steps.length; step++) {
    const widest = Math.max(...nodes.filter((node) => node.step === step).map(wide), 26);
    const before = step ? Math.max(...nodes.filter((node) => node.step === step - 1).map(wide), 26) : 38;
    centers.push(centers[step] + Math.max(STEP, (before + widest) / 2 + 42));
  }
  const width = centers.at(-1) + 44;
  const height = Math.max(1, rows) * ROW + 16;
  const x = (node) => centers[node.step + 1];
  const y = (node) => 20 + node.row * ROW;
  const groups = new Map();
  const highlight = (node) => {
    const path = new Set();
    for (let each = node; each; each = each.parent) path.add(each);
    for (const [each, group] of groups) {
      group.classList.toggle("dim", !path.has(each));
      group.classList.toggle("at", each === node);
    }
    show(node);
  };
  const rest = () => groups.forEach((group) => group.classList.remove("dim", "at"));
  const drawn = [root, ...nodes].map((node) => {
    const kinds = ["branch", node.best && "best", node.state].filter(Boolean).join(" ");
    const gain = node.parent && node.state !== "finished" ? Math.exp(node.score - node.parent.score) : 1;
    const word = shown(node.token);
    const label = t("branch", { step: node.step + 1, text: node.text, state: t(`states.${node.best ? "best" : node.state}`), score: node.score.toFixed(2) });
    const path = node.parent
      ? s("path", { d: curve(x(node.parent) + wide(node.parent) / 2, y(node.parent), x(node) - wide(node) / 2, y(node)), "stroke-width": (1 + 2.5 * Math.min(1, gain)).toFixed(2) })
      : null;
    const group = s("g", { class: kinds, role: "img", "aria-label": label },
      path,
      s("rect", { x: x(node) - wide(node) / 2, y: y(node) - 12, width: wide(node), height: 24, rx: 4 }),
      s("text", { class: "word", x: x(node), y: y(node) + 5, "text-anchor": "middle", "font-size": 15 }, word),
      node.parent ? s("text", { class: "small", x: x(node), y: y(node) + 23, "text-anchor": "middle" }, node.score.toFixed(2)) : null);
    group.addEventListener("pointerenter", () => highlight(node));
    group.addEventListener("focus", () => highlight(node));
    group.addEventListener("click", () => group.focus());
    groups.set(node, group);
    return group;
  });
  const order = [root, ...nodes];
  roving(drawn, (n, key) => {
    const node = order[n];
    const siblings = order.filter((each) => each.step === node.step).sort((a, b) => a.row - b.row);
    const at = siblings.indexOf(node);
    const found = { ArrowRight: node.children[0], ArrowLeft: node.parent, ArrowDown: siblings[at + 1], ArrowUp: siblings[at - 1] }[key];
    return found ? order.indexOf(found) : null;
  });
  return s("svg", { class: "tree", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": t("tree"), onpointerleave: rest }, drawn);
}

function curve(x0, y0, x1, y1) {
  const middle = (x0 + x1) / 2;
  return `M${x0} ${y0}C${middle} ${y0} ${middle} ${y1} ${x1} ${y1}`;
}
