"""A Sphinx extension: the docstrings of this project, as napoleon and reStructuredText want them.

The docstrings follow Keras: Google's sections and Markdown's backticks and indented code.
"""

import re

from sphinx.util.inspect import signature, stringify_signature

SECTION = re.compile(r"(Args|Call arguments|Returns|Yields|Raises|Source|Departs):(?: (.+))?")


def setup(app):
    app.connect("autodoc-process-signature", show_constructor)
    app.connect("autodoc-process-docstring", prepare, priority=400)  # before napoleon


def show_constructor(app, kind, name, thing, options, arguments, returned):
    """Keras's layers hide the constructor's arguments behind __new__(*args, **kwargs)."""
    if kind == "class" and arguments == "(*args, **kwargs)":
        return stringify_signature(signature(thing.__init__, bound_method=True)), None


def prepare(app, kind, name, thing, options, lines):
    sections = {}
    body = sections[""] = []
    for line in lines:
        section = SECTION.fullmatch(line)
        if section:
            body = sections[section[1]] = []
            line = section[2] and f"    {section[2]}"
        elif body is not sections[""] and line.strip():
            line = line if line.startswith("    ") else f"    {line}"
        if line is not None:
            body.append(escaped(line))
    sections[""] = with_code_marked(sections[""])
    for title in ("Args", "Call arguments"):
        if title in sections:
            sections[title] = with_names_joined(sections[title])
    if "Returns" in sections:
        sections["Returns"] = with_items_apart(sections["Returns"])
    lines[:] = sections.pop("")
    for title, body in sections.items():
        lines += ["", f"{title}:", *body]


def escaped(line):
    """Outside of backticks, |x| is an absolute value, val_ a prefix and *args an argument."""
    parts = line.split("`")
    markup = r"[|]|(?<=\w)_(?!\w)|\*(?=[*\w])"
    parts[::2] = [re.sub(markup, r"\\\g<0>", text) for text in parts[::2]]
    return "`".join(parts)


def with_code_marked(lines):
    """Indented lines after an empty one are code."""
    marked, within = [], False
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("    ") and not before.strip() and not within:
            marked += [".. code-block:: python", ""]
            within = True
        elif line.strip() and not line.startswith("    "):
            within = False
        marked.append(line.replace("\\", "") if within else line)
    return marked


def with_names_joined(lines):
    """Names that share an entry, on one line."""
    text = "\n".join(lines)
    return re.sub(r"(?m)^(    (?:[\w*\\]+, )*[\w*\\]+,)\n +", r"\1 ", text).split("\n")


def with_items_apart(lines):
    """Several named results become paragraphs of one line each."""
    items = [line for line in lines if re.match(r"    \S", line)]
    if len(items) < 2 or not all(re.match(r"    [\w^]+: ", item) for item in items):
        return lines
    joined = re.sub(r"\n {5,}", " ", "\n".join(lines).strip("\n"))
    return joined.replace("\n", "\n\n").split("\n")
