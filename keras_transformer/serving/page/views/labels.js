// Tags, labels and masked words with their probabilities.
import { ask } from "../api.js";
import { bars, h, inLine, percent, roving } from "../elements.js";
import { t } from "../words.js";

export function open(body, { model, settings, run, announce }) {
  const result = h("div", {});
  body.append(result);

  function clear() {
    result.replaceChildren(h("p", { class: "note" }, t("empty")));
  }

  function update(text) {
    run(async (signal) => {
      const found = await ask("labels", { model: model.name, text }, signal);
      if (model.kind === "tag") drawTags(found);
      else result.replaceChildren(...found.flatMap(drawLabels));
      announce(found.map(({ word, labels }) => `${word ?? ""} ${labels[0].label}`.trim()).join(", "));
    });
  }

  function drawLabels({ labels }) {
    const title = t(model.kind === "fill" ? "mask" : "labels");
    return [h("h2", {}, title), bars(labels.map(named), title)];
  }

  function drawTags(found) {
    const chosen = h("div");
    const words = found.map(({ word, labels: [best] }, n) => {
      const button = h("button", { type: "button", "aria-pressed": "false", onclick: () => choose(n) },
        h("span", {}, word), h("span", { class: "label" }, best.label), h("span", { class: "sure", "--p": best.probability, title: percent(best.probability) }));
      button.addEventListener("focus", () => choose(n));
      return button;
    });
    const choose = (n) => {
      settings.word = n;
      words.forEach((word, m) => word.setAttribute("aria-pressed", String(m === n)));
      const title = t("labelsOf", { word: found[n].word });
      chosen.replaceChildren(h("h2", {}, title), bars(found[n].labels.map(named), title));
    };
    roving(words, inLine);
    result.replaceChildren(h("div", { class: "words" }, words), chosen);
    choose(Math.min(settings.word ?? 0, found.length - 1));
  }

  return { update, clear };
}

function named({ label, probability }) {
  return { name: label, probability };
}
