// A translation as one types, and what each of its tokens reads.
import { ask } from "../api.js";
import { h, inLine, largest, roving, shown } from "../elements.js";
import { t } from "../words.js";

export function open(body, { model, run, announce }) {
  const answer = h("p", { class: "answer", lang: "" });
  const reading = h("div", { class: "kind-cross" });
  body.append(answer, reading);

  function clear() {
    answer.textContent = "";
    reading.replaceChildren(h("p", { class: "note" }, t("empty")));
  }

  function update(text) {
    run(async (signal) => {
      const { answers } = await ask("translate", { model: model.name, texts: [text] }, signal);
      const best = [answers[0]].flat()[0];
      answer.textContent = best.text ?? best;
      announce(answer.textContent);
      const found = await ask("attention", { model: model.name, text, answer: answer.textContent }, signal);
      draw(found);
    });
  }

  function draw({ tokens, maps }) {
    const cross = maps.filter((map) => map.kind === "cross").at(-1);
    const heads = cross.weights;
    const mean = (i, j) => heads.reduce((sum, head) => sum + head[i][j], 0) / heads.length;
    const readout = h("p", { class: "readout", "aria-live": "polite" });
    const sides = ["source", "target"].map((side) =>
      tokens[side].map((token) => h("button", { type: "button", class: "token" }, shown(token))));
    const show = (side, n) => {
      const weights = tokens[side === 0 ? "target" : "source"].map((_, m) => (side === 0 ? mean(m, n) : mean(n, m)));
      const others = sides[1 - side];
      others.forEach((token, m) => token.style.setProperty("--strength", Math.min(1, weights[m])));
      sides[side].forEach((token, m) => {
        token.style.setProperty("--strength", 0);
        token.classList.toggle("at", m === n);
      });
      others.forEach((token) => token.classList.remove("at"));
      const token = shown(tokens[side === 0 ? "source" : "target"][n]).trim();
      const list = largest(tokens[side === 0 ? "target" : "source"], weights);
      readout.textContent = t(side === 0 ? "isRead" : "reads", { token, list });
    };
    sides.forEach((buttons, side) => {
      roving(buttons, inLine);
      buttons.forEach((button, n) => {
        for (const event of ["pointerenter", "focus", "click"])
          button.addEventListener(event, () => show(side, n));
      });
    });
    reading.replaceChildren(
      h("h2", {}, t("reading")),
      h("p", { class: "note" }, t("readingNote")),
      h("h3", {}, t("source")),
      h("div", { class: "reading" }, sides[0]),
      h("h3", {}, t("target")),
      h("div", { class: "reading" }, sides[1]),
      readout,
    );
    show(1, 0);
  }

  return { update, clear };
}
