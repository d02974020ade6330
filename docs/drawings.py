"""The drawings: a map of the Transformer with a chapter on each box, and six schematics.

The command that writes them to docs/drawings, and in Chinese to docs/drawings/zh:
python docs/drawings.py

Each is an SVG with its own background, light or dark as the reader's system (on the site, as the
reader's choice there). The site shows the map at the head of each chapter: see docs/conf.py.
"""

import html
import math
import pathlib
import re
import sys

DOCS = pathlib.Path(__file__).parent
FOLDER = DOCS / "drawings"
CHAPTERS = DOCS.parent / "chapters"
sys.path.append(str(CHAPTERS))

import labels  # noqa: E402, of the chapters

# Colors of Okabe and Ito, as in the chapters' figures: (light, dark).
COLORS = {
    "paper": ("#ffffff", "#12171d"),
    "ink": ("#1f2328", "#e6edf3"),
    "faint": ("#6e7781", "#9aa4af"),
    "line": ("#afb8c1", "#57606a"),
    "blank": ("#f0f2f4", "#252c34"),
    "blue": ("#0072b2", "#56b4e9"),
    "orange": ("#d55e00", "#f08a4b"),
    "green": ("#009e73", "#35c79b"),
    "purple": ("#b0578a", "#dd9cc0"),
    "pale_blue": ("#dceaf4", "#10344c"),
    "pale_orange": ("#fbe5d8", "#4f2710"),
    "pale_green": ("#d9f1e9", "#0c3d31"),
    "pale_purple": ("#f6e6ef", "#472a3b"),
}


def style():
    """CSS: classes f-NAME fill and s-NAME stroke; the second half is for the dark."""

    def rules(which, prefix=""):
        return "".join(
            f"{prefix}.f-{name}{{fill:{shades[which]}}}{prefix}.s-{name}{{stroke:{shades[which]}}}"
            for name, shades in COLORS.items()
        )

    chosen = 'html[data-theme="{}"] .drawing '
    return (
        ".drawing text{font-family:system-ui,'Segoe UI','DejaVu Sans',sans-serif}"
        ".drawing a{text-decoration:none;cursor:pointer}.drawing a:hover rect,.drawing a:hover "
        "circle{stroke-width:3}"
        f"{rules(0)}@media(prefers-color-scheme:dark){{{rules(1)}}}"
        f"{rules(0, chosen.format('light'))}{rules(1, chosen.format('dark'))}"
    )


class Drawing:
    """Shapes on a page of width by height, in the order in which they are drawn."""

    def __init__(self, width, height, title):
        self.width, self.height, self.title, self.parts = width, height, title, []

    def add(self, tag, text="", **attributes):
        """An element; underscores in names are hyphens."""
        pairs = "".join(
            f' {name.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
            for name, value in attributes.items()
            if value is not None
        )
        self.parts.append(f"<{tag}{pairs}>{text}</{tag}>" if text else f"<{tag}{pairs}/>")

    def box(self, x, y, width, height, fill="blank", stroke="line", radius=8, thick=1.5, dash=None):
        self.add(
            "rect",
            x=x,
            y=y,
            width=width,
            height=height,
            rx=radius,
            class_=f"f-{fill} s-{stroke}",
            stroke_width=thick,
            stroke_dasharray=dash,
        )

    def text(self, x, y, words, size=15, color="ink", anchor="middle", bold=False):
        if not words:
            return
        self.add(
            "text",
            html.escape(words),
            x=x,
            y=y + size * 0.35,
            font_size=size,
            text_anchor=anchor,
            class_=f"f-{color}",
            font_weight="bold" if bold else None,
        )

    def line(self, *points, color="faint", thick=1.6, arrow=True, dash=None):
        """Through points; with `arrow`, a head at the last one."""
        path = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
        self.add(
            "path",
            d=path,
            fill="none",
            class_=f"s-{color}",
            stroke_width=thick,
            stroke_dasharray=dash,
            stroke_linejoin="round",
        )
        if arrow:
            (x0, y0), (x, y) = points[-2:]
            length = ((x - x0) ** 2 + (y - y0) ** 2) ** 0.5
            u, v = (x - x0) / length, (y - y0) / length
            size = 5 + thick
            left = x - size * u - size * v / 2, y - size * v + size * u / 2
            right = x - size * u + size * v / 2, y - size * v - size * u / 2
            head = f"M{x:g} {y:g}L{left[0]:.1f} {left[1]:.1f}L{right[0]:.1f} {right[1]:.1f}Z"
            self.add("path", d=head, class_=f"f-{color}")

    def labelled(self, x, y, width, height, words, fill="blank", stroke="line", **options):
        """A box with its words, on one line or several, in the middle."""
        size = options.pop("size", 15)
        self.box(x, y, width, height, fill, stroke, **options)
        lines = words.split("\n")
        for number, line in enumerate(lines):
            offset = (number - (len(lines) - 1) / 2) * size * 1.25
            self.text(x + width / 2, y + height / 2 + offset, line, size)

    def in_chinese(self, words):
        return labels.in_chinese(words)

    def svg(self, chinese=False):
        title, parts = html.escape(self.title), "\n".join(self.parts)
        if chinese:
            title = html.escape(self.in_chinese(self.title))
            parts = re.sub(
                r"(<text[^>]*>)([^<]+)",
                lambda found: found[1] + html.escape(self.in_chinese(html.unescape(found[2]))),
                parts,
            )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing" '
            f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}"><title>{title}</title>'
            f"<style>{style()}</style>"
            f'<rect class="f-paper" width="{self.width}" height="{self.height}" rx="12"/>'
            + parts
            + "</svg>\n"
        )


# The map


def titles():
    """The title of each chapter by its number, its Chinese title, and the name of its file."""
    found = {}
    for path in sorted(CHAPTERS.glob("[0-9]*.py")):
        chinese = (CHAPTERS / "zh" / f"{path.stem}.md").read_text("utf-8")
        names = [re.search(r"# (\d+) · (.+)", text) for text in (path.read_text("utf-8"), chinese)]
        found[int(names[0][1])] = names[0][2], names[1][2], path.stem
    return found


def short(title):
    """A title, or what stands before its colon, where it is long."""
    width = sum(2 if letter >= "\u2e80" else 1 for letter in title)  # Chinese is square
    return re.split(r"[:,：，] ?", title)[0] if width > 31 else title


class Map(Drawing):
    """Figure 1 of the paper, with the number of a chapter on each box.

    Args:
        here: int, the chapter that is marked; None: none.
        links: dict from the number of a chapter to its address, for a page of the site.
    """

    ENCODER, DECODER, WIDTH = 70, 380, 190  # left edges of the columns, and their width

    def __init__(self, here=None, links=None):
        title = "The Transformer, the number of a chapter on each box"
        super().__init__(900, 700, title + (f"; you are in chapter {here}" if here else ""))
        self.here, self.links, self.drawn, self.chinese = here, links or {}, set(), {}
        self.frames()
        self.encoder()
        self.decoder()
        self.training_and_decoding()
        self.inside_a_head()
        self.others()

    def linked(self, number, draw):
        """What `draw` adds, as a link to a chapter."""
        self.drawn.add(number)
        if number in self.links:
            self.parts.append(f'<a href="{html.escape(self.links[number])}">')
        draw()
        if number in self.links:
            self.parts.append("</a>")

    def chapter(self, number, x, y, width, height, words, color="blank", size=15):
        """A box with the number of its chapter on the left edge."""

        def draw():
            is_plain, thick = color == "blank", 4 if number == self.here else 1.5
            fill, stroke = ("blank", "line") if is_plain else (f"pale_{color}", color)
            stroke = "orange" if number == self.here else stroke
            self.labelled(x, y, width, height, words, fill, stroke, thick=thick, size=size)
            self.badge(number, x, y + height / 2)

        self.linked(number, draw)

    def badge(self, number, x, y):
        fill = "orange" if number == self.here else "blue"
        self.add("circle", cx=x, cy=y, r=12, class_=f"f-{fill} s-paper", stroke_width=2)
        self.text(x, y, str(number), 12, "paper", bold=True)

    def frames(self):
        for x, y, height, words in ((26, 274, 266, "encoder"), (340, 146, 394, "decoder")):
            self.box(x, y, 256, height, "paper", "line", 14, 1.5, "6 5")
            self.linked(9, lambda x=x, y=y: self.badge(9, x + 18, y))
            self.text(x + 40, y + 14, f"{words} × N", 12, "faint", "start")

    def stack(self, x, sublayers):
        """Sublayers from the bottom to the top, each with Add & Norm and its residual."""
        center = x + self.WIDTH / 2
        for number, words, color, top, height in sublayers:
            bottom, norm = top + height, top - 40
            self.line((center, bottom + 22), (center, bottom))
            self.line((center, top), (center, norm + 24))
            fork, side, join = bottom + 13, x - 22, norm + 12
            self.line((center, fork), (side, fork), (side, join), (x - 12, join), color="line")
            self.chapter(number, x, top, self.WIDTH, height, words, color)
            self.chapter(8, x, norm, self.WIDTH, 24, "Add & Norm", size=12)

    def inputs(self, x, words):
        center = x + self.WIDTH / 2
        self.text(center, 676, words, 13, "faint")
        self.line((center, 662), (center, 644))
        self.line((center, 610), (center, 592))
        self.line((center, 562), (center, 536), arrow=False)
        self.chapter(1, x, 610, self.WIDTH, 34, "Token embeddings", "green")
        self.chapter(5, x, 562, self.WIDTH, 30, "+ Positions", "purple")

    def encoder(self):
        center = self.ENCODER + self.WIDTH / 2
        self.line((center, 428), (center, 408), arrow=False)
        self.line((center, 310), (center, 252), (314, 252), (314, 364), (368, 364))
        self.text(244, 242, "memory", 12, "faint")
        self.inputs(self.ENCODER, "source: I love apples")
        feed_forward = (8, "Feed-forward", "blue", 350, 36)
        self.stack(
            self.ENCODER, [(4, "Multi-head\nself-attention", "orange", 468, 48), feed_forward]
        )

    def decoder(self):
        x = self.DECODER
        center = x + self.WIDTH / 2
        for bottom, top in ((428, 408), (300, 278)):
            self.line((center, bottom), (center, top), arrow=False)
        self.line((center, 182), (center, 130))
        self.line((center, 96), (center, 72))
        self.text(center, 56, "probabilities of the next token", 13, "faint")
        self.inputs(x, "target, shifted right")
        self.stack(
            x,
            [
                (6, "Masked multi-head\nself-attention", "orange", 468, 48),
                (7, "Cross-attention", "orange", 340, 48),
                (8, "Feed-forward", "blue", 222, 36),
            ],
        )
        self.chapter(9, x, 96, self.WIDTH, 34, "Linear, softmax", "green")

    def training_and_decoding(self):
        right = self.DECODER + self.WIDTH
        self.line((right, 106), (598, 106), (598, 48), (628, 48))
        self.line((right, 120), (628, 120))
        self.line((640, 134), (616, 134), (616, 627), (right, 627))
        self.chapter(10, 640, 28, 236, 40, "Training: loss and schedule", size=14)
        self.chapter(11, 640, 100, 236, 40, "Decoding: choose a token", size=14)

    def inside_a_head(self):
        self.line((582, 364), (640, 236), color="line", arrow=False, dash="2 4")
        self.line((582, 364), (640, 268), color="line", arrow=False, dash="2 4")
        formula = "Scaled dot-product attention\nsoftmax(Q Kᵀ / √dₖ) V"
        self.chapter(3, 640, 214, 236, 76, formula, "orange", size=14)
        self.text(758, 204, "inside each head", 12, "faint")

    def others(self):
        """A list of the chapters that are no box."""
        self.text(640, 336, "Around the model", 14, "faint", "start")
        y = 366
        for number, (title, chinese, _) in titles().items():
            if number not in self.drawn:
                title = short(title)
                self.chinese[title] = short(chinese)
                self.linked(number, lambda n=number, t=title, y=y: self.row(n, t, y))
                y += 34
        if self.links:
            self.text(640, y, "A click on a box opens its chapter", 13, "faint", "start")

    def in_chinese(self, words):
        return self.chinese.get(words) or super().in_chinese(words)

    def row(self, number, title, y):
        is_here = number == self.here
        self.box(
            640, y - 14, 236, 28, "blank", "orange" if is_here else "line", 8, 4 if is_here else 1
        )
        self.badge(number, 640, y)
        self.text(662, y, title, 13, anchor="start")


# Schematics


def attention_of_three_words():
    """The row of "who" in the matrix of chapter 3: 0.2, 0.1 and 0.7."""
    drawing = Drawing(760, 330, "Attention of three words: scores, weights, weighted mean")
    words, weights = ("I", "am", "who"), (0.2, 0.1, 0.7)
    drawing.text(110, 30, "query", 14, "faint")
    drawing.text(300, 30, "keys", 14, "faint")
    drawing.text(415, 30, "weights", 14, "faint")
    drawing.text(540, 30, "values", 14, "faint")
    drawing.text(685, 30, "output", 14, "faint")
    drawing.labelled(60, 136, 100, 44, "q of who", "pale_orange", "orange")
    for number, (word, weight) in enumerate(zip(words, weights, strict=True)):
        y = 62 + 74 * number
        drawing.line((160, 158), (252, y + 22), color="orange", thick=1 + 6 * weight)
        drawing.labelled(255, y, 90, 44, f"k of {word}", "pale_blue", "blue")
        drawing.box(375, y + 13, 80, 18, "blank", "line", 3, 1)
        drawing.box(375, y + 13, 80 * weight, 18, "orange", "orange", 3, 1)
        drawing.text(415, y + 44, f"{weight}", 13, "ink")
        drawing.labelled(495, y, 90, 44, f"v of {word}", "pale_green", "green")
        drawing.line((585, y + 22), (632, 158), color="green", thick=1 + 6 * weight)
    drawing.labelled(634, 130, 116, 56, "0.2 v₁ + 0.1 v₂\n+ 0.7 v₃", "pale_green", "green", size=13)
    drawing.text(205, 276, "q·k / √dₖ", 14)
    drawing.text(415, 300, "softmax: they sum to 1", 14)
    drawing.text(612, 276, "weighted mean", 14)
    return drawing


def heads():
    """Four slices of one projection, four attentions, one W^O."""
    drawing = Drawing(760, 300, "Multi-head attention: slices of one projection")
    colors = ("blue", "orange", "green", "purple")
    drawing.labelled(24, 116, 84, 64, "x\nd_model", size=14)
    drawing.line((108, 148), (150, 148))
    drawing.text(196, 24, "one projection", 14, "faint")
    drawing.text(416, 24, "h = 4 attentions of width d_model / 4", 14, "faint")
    drawing.text(606, 280, "Concat", 14, "faint")
    for number, color in enumerate(colors):
        y = 44 + 56 * number
        drawing.box(152, y, 88, 56, f"pale_{color}", color, 0)
        drawing.text(196, y + 28, f"W{'₁₂₃₄'[number]}: Q, K, V", 13)
        drawing.line((240, y + 28), (300, y + 28), color=color)
        drawing.labelled(
            302,
            y + 6,
            228,
            44,
            f"head {number + 1}: softmax(QKᵀ/√dₖ)V",
            f"pale_{color}",
            color,
            size=13,
        )
        drawing.line((530, y + 28), (584, y + 28), color=color)
        drawing.box(586, y, 40, 56, f"pale_{color}", color, 0)
    drawing.line((626, 156), (658, 156))
    drawing.labelled(660, 116, 80, 80, "Wᴼ", "blank", "line")
    return drawing


def mask():
    """Scores, which keys (columns) each query (row) may attend to, and the softmax of both."""
    drawing = Drawing(790, 330, "The look-ahead mask: scores, mask, weights")
    words = ("<s>", "I", "love", "apples")
    scores = (
        (0.4, 1.1, 0.2, 0.7),
        (0.2, 1.4, 0.9, 0.3),
        (0.0, 1.6, 0.7, 1.2),
        (0.3, 0.5, 1.5, 0.8),
    )
    exponentials = [[math.exp(score) for score in row[: i + 1]] for i, row in enumerate(scores)]
    weights = [[one / sum(row) for one in row] for row in exponentials]
    matrices = [
        ("scores", 90, lambda i, j: ("pale_blue", f"{scores[i][j]:.1f}")),
        ("mask", 340, lambda i, j: ("blue", "") if j <= i else ("blank", "-∞")),
        (
            "weights",
            630,
            lambda i, j: ("pale_orange", f"{weights[i][j]:.2f}") if j <= i else ("blank", "0"),
        ),
    ]
    for title, x, cell in matrices:
        drawing.text(x + 72, 28, title, 15)
        for j, word in enumerate(words):
            drawing.text(x + 18 + 36 * j, 60, word, 11, "faint")
        for i, word in enumerate(words):
            drawing.text(x - 8, 92 + 36 * i, word, 12, "faint", "end")
            for j in range(4):
                fill, number = cell(i, j)
                drawing.box(x + 36 * j, 74 + 36 * i, 36, 36, fill, "paper", 0, 2)
                drawing.text(x + 18 + 36 * j, 92 + 36 * i, number, 12)
    drawing.text(268, 146, "+", 22)
    drawing.text(532, 126, "softmax", 12, "faint")
    drawing.line((502, 146), (562, 146))
    drawing.text(395, 258, "rows: queries, the words that are being read", 14, "faint")
    drawing.text(395, 282, "columns: keys; blue: may be attended to (True), + 0", 14, "faint")
    drawing.text(395, 306, "each row of weights sums to 1 over what it may see", 14, "faint")
    return drawing


def teacher_forcing():
    """The decoder's input is the target, moved by one."""
    drawing = Drawing(760, 290, "Teacher forcing: the target shifted right, and the labels")
    inputs, labels = ("<s>", "I", "love", "apples"), ("I", "love", "apples", "</s>")
    drawing.text(24, 46, "labels", 14, "faint", "start")
    drawing.text(24, 246, "input", 14, "faint", "start")
    for number in range(3):  # behind the box
        x = 128 + 154 * number
        drawing.line((x + 112, 68), (x + 178, 222), color="faint", dash="4 4")
    drawing.labelled(
        120,
        116,
        616,
        62,
        "decoder, all positions in one pass, look-ahead mask",
        "pale_orange",
        "orange",
    )
    for number, (word, label) in enumerate(zip(inputs, labels, strict=True)):
        x = 128 + 154 * number
        drawing.labelled(x, 26, 136, 40, label, "pale_green", "green")
        drawing.line((x + 68, 116), (x + 68, 68), color="green")
        drawing.labelled(x, 226, 136, 40, word, "pale_blue", "blue")
        drawing.line((x + 68, 226), (x + 68, 180), color="blue")
    drawing.text(24, 146, "the true word,", 12, "faint", "start")
    drawing.text(24, 162, "moved by one", 12, "faint", "start")
    return drawing


def cache():
    """One query per step; keys and values of earlier tokens are kept."""
    drawing = Drawing(760, 300, "The cache: one new key and value per step")
    words = ("<s>", "I", "love", "apples")
    drawing.text(120, 28, "query", 14, "faint")
    drawing.text(430, 28, "keys and values", 14, "faint")
    drawing.text(704, 28, "writes", 14, "faint")
    for step in range(4):
        y = 52 + 52 * step
        drawing.text(20, y + 18, f"step {step + 1}", 13, "faint", "start")
        drawing.labelled(80, y, 80, 36, words[step], "pale_orange", "orange")
        for place in range(step + 1):
            is_new = place == step
            fill, stroke = ("pale_orange", "orange") if is_new else ("pale_blue", "blue")
            drawing.labelled(222 + 106 * place, y, 96, 36, words[place], fill, stroke)
        drawing.line((160, y + 18), (218, y + 18), color="orange")
        drawing.line((326 + 106 * step, y + 18), (666, y + 18), color="line")
        drawing.text(704, y + 18, (*words[1:], "</s>")[step], 14)
    drawing.box(150, 268, 16, 14, "pale_blue", "blue", 3)
    drawing.text(174, 275, "from the cache", 13, "faint", "start")
    drawing.box(330, 268, 16, 14, "pale_orange", "orange", 3)
    drawing.text(
        354, 275, "computed in this step: one token, whatever the length", 13, "faint", "start"
    )
    return drawing


def beam_search():
    """The table of chapter 11: greedy decoding finds 0.180, two beams 0.360."""
    drawing = Drawing(760, 396, "Beam search with two beams, compared with greedy decoding")
    nodes = {  # x, y, word, probability of the beginning, who keeps it
        "start": (60, 190, "<s>", "", "both"),
        "it": (200, 260, "it", "0.6", "both"),
        "heavy": (200, 95, "heavy", "0.4", "beams"),
        "rained": (360, 290, "rained", "0.36", "both"),
        "poured": (360, 205, "poured", "0.24", "cut"),
        "rain": (360, 95, "rain", "0.4", "beams"),
        "hard": (530, 250, "hard", "0.18", "both"),
        "heavily": (530, 320, "heavily", "0.126", "beams"),
        "end of rain": (530, 95, "</s>", "0.36", "beams"),
        "fell": (530, 165, "fell", "0.04", "cut"),
        "end of hard": (680, 250, "</s>", "0.18", "both"),
        "end of heavily": (680, 320, "</s>", "0.126", "beams"),
    }
    edges = "start-it start-heavy it-rained it-poured heavy-rain rained-hard rained-heavily".split()
    edges += ["rain-end of rain", "rain-fell", "hard-end of hard", "heavily-end of heavily"]
    colors = {"both": "orange", "beams": "blue", "cut": "line"}
    for edge in edges:
        one, other = (nodes[name] for name in edge.split("-"))
        is_cut = other[4] == "cut"
        drawing.line(
            (one[0] + 38, one[1]),
            (other[0] - 38, other[1]),
            color=colors[other[4]],
            thick=1.5 if is_cut else 4,
            arrow=False,
            dash="4 4" if is_cut else None,
        )
    for x, y, word, p, kind in nodes.values():
        fill = {"both": "pale_orange", "beams": "pale_blue", "cut": "blank"}[kind]
        drawing.labelled(x - 38, y - 17, 76, 34, word, fill, colors[kind])
        drawing.text(x, y - 27, p, 13, "faint")
    words = "blue: found by two beams only, and 0.36 is the best; dashed: cut"
    drawing.text(22, 28, words, 14, "blue", "start")
    words = "orange: greedy decoding, which ends with 0.18; two beams keep it as well"
    drawing.text(22, 372, words, 14, "orange", "start")
    return drawing


SCHEMATICS = {
    "attention": attention_of_three_words,
    "heads": heads,
    "mask": mask,
    "teacher_forcing": teacher_forcing,
    "cache": cache,
    "beam_search": beam_search,
}


def drawings():
    """The text of each file in docs/drawings, by its name."""
    drawn = {"transformer": Map(), **{name: draw() for name, draw in SCHEMATICS.items()}}
    english = {f"{name}.svg": drawing.svg() for name, drawing in drawn.items()}
    return english | {f"zh/{name}.svg": drawing.svg(True) for name, drawing in drawn.items()}


if __name__ == "__main__":
    (FOLDER / "zh").mkdir(parents=True, exist_ok=True)
    for name, text in drawings().items():
        (FOLDER / name).write_text(text, "utf-8")
        print(FOLDER / name)
