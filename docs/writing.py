"""The moving picture of the README: where the model of the dates looks while it writes one.

The command that draws it to docs/writing.svg: python docs/writing.py

A reader who prefers reduced motion, or whose program does not animate, sees all rows at once.
"""

import pathlib
import sys

DOCS = pathlib.Path(__file__).parent
sys.path.append(str(DOCS))

import drawings  # noqa: E402, beside this file

TEXT = "Oct 13, 3023"
CELL, LEFT, TOP = 36, 104, 72  # of the map
SECONDS, STILL = 0.7, 5  # per row; rows for which the finished map stands still


def draw(source, target, weights):
    """A drawing of attention weights (target, source), its rows appearing one by one."""
    width, height = LEFT + CELL * len(source) + 20, TOP + CELL * len(target) + 44
    drawing = drawings.Drawing(width, height, f"A model reads {TEXT} and writes a date")
    drawing.text(LEFT, 22, "reads", 14, "faint", "start")
    drawing.text(20, TOP - 26, "writes", 14, "faint", "start")
    for column, token in enumerate(source):
        drawing.text(LEFT + CELL * (column + 0.5), TOP - 26, token, 20)
    rules = []
    for row, (token, shares) in enumerate(zip(target, weights, strict=True)):
        y = TOP + CELL * row
        start = 100 * row / (len(target) + STILL)
        end = 100 * (row + 1) / (len(target) + STILL)
        rules.append(
            f"@keyframes r{row}{{0%,{start:.1f}%{{opacity:0}}{start + 1:.1f}%,100%{{opacity:1}}}}"
            f"@keyframes w{row}{{0%,{start:.1f}%,{end:.1f}%,100%{{opacity:0}}"
            f"{start + 0.5:.1f}%,{end - 0.5:.1f}%{{opacity:1}}}}"
        )
        timing = f"{SECONDS * (len(target) + STILL):g}s infinite"
        drawing.parts.append(f'<g class="moving" style="--by:r{row} {timing}">')
        drawing.text(60, y + CELL / 2, token, 22, bold=True)
        for column, share in enumerate(shares):
            x = LEFT + CELL * column
            drawing.box(x + 1, y + 1, CELL - 2, CELL - 2, "blank", "blank", 4, 0)
            if share >= 0.01:
                drawing.add(
                    "rect",
                    x=x + 1,
                    y=y + 1,
                    width=CELL - 2,
                    height=CELL - 2,
                    rx=4,
                    class_="f-blue",
                    fill_opacity=f"{share:.2f}",
                )
        drawing.parts.append("</g>")
        drawing.parts.append(f'<g class="moving" opacity="0" style="--by:w{row} {timing}">')
        drawing.add(
            "rect",
            x=LEFT - 3,
            y=y - 2,
            width=CELL * len(source) + 6,
            height=CELL + 4,
            rx=8,
            fill="none",
            class_="s-orange",
            stroke_width=3,
        )
        drawing.parts.append("</g>")
    moving = ".moving{animation:var(--by)}"
    drawing.parts.insert(
        0,
        f"<style>{''.join(rules)}@media(prefers-reduced-motion:no-preference){{{moving}}}</style>",
    )
    words = "the stronger the blue, the more attention"
    drawing.text(LEFT, height - 20, words, 14, "faint", "start")
    return drawing


def main():
    import keras_transformer

    maps = keras_transformer.load("dates").attention(TEXT)
    weights = maps.weights[-1].mean(axis=0)
    source, target = (
        [{"</s>": "end", "▁": "␣"}.get(token, token) for token in tokens]
        for tokens in (maps.source_tokens, maps.target_tokens)
    )
    (DOCS / "writing.svg").write_text(draw(source, target, weights).svg(), "utf-8")


if __name__ == "__main__":
    main()
