"""Assemble the report once and write it as Markdown (figures beside it) and as one self-contained HTML page."""

from __future__ import annotations

import base64
import html
from pathlib import Path
from typing import Any

import polars as pl

from engine.atomic import write_atomic

CSS = """
body{font:15px/1.5 system-ui,sans-serif;max-width:1180px;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;font-size:12.5px;margin:1em 0}
td,th{border:1px solid #ddd;padding:3px 7px;text-align:right;white-space:nowrap}
th{background:#f4f4f4}td.t{text-align:left}td.p{background:#faf6ec;color:#665}
figure{margin:1.5em 0}figure img{max-width:100%}figcaption{color:#555;font-size:13px}
.scroll{overflow-x:auto}code{background:#f4f4f4;padding:0 3px}
"""


class Page:
    """Blocks of a report in order; `write` renders them twice."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._markdown = [f"# {title}", ""]
        self._html: list[str] = [f"<h1>{html.escape(title)}</h1>"]
        self._files: dict[str, bytes] = {}

    def heading(self, text: str) -> None:
        """Start a section."""
        self._markdown += [f"## {text}", ""]
        self._html.append(f"<h2>{html.escape(text)}</h2>")

    def text(self, text: str) -> None:
        """One paragraph."""
        self._markdown += [text, ""]
        self._html.append(f"<p>{html.escape(text)}</p>")

    def items(self, texts: list[str]) -> None:
        """A list."""
        self._markdown += [*(f"- {t}" for t in texts), ""]
        self._html.append("<ul>" + "".join(f"<li>{html.escape(t)}</li>" for t in texts) + "</ul>")

    def table(self, table: pl.DataFrame) -> None:
        """A table; columns from a paper (``paper_...``) are shaded, columns without any value left out."""
        table = table.select([c for c in table.columns if table[c].null_count() < len(table)])
        if table.is_empty():
            return self.text("(nothing measured)")
        names = table.columns
        text_columns = {n for n in names if table.schema[n] == pl.String}
        rows = [[_cell(v) for v in row] for row in table.iter_rows()]
        self._markdown.append("| " + " | ".join(names) + " |")
        self._markdown.append("|" + "|".join("---" if n in text_columns else "---:" for n in names) + "|")
        self._markdown += ["| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in rows]
        self._markdown.append("")
        head = "".join(f"<th>{html.escape(n)}</th>" for n in names)
        classes = [("t" if n in text_columns else "") + (" p" if n.startswith("paper_") else "") for n in names]
        body = "".join(
            "<tr>"
            + "".join(f'<td class="{k}">{html.escape(c)}</td>' for k, c in zip(classes, row, strict=True))
            + "</tr>"
            for row in rows
        )
        self._html.append(f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>')

    def figure(self, name: str, data: bytes | None, caption: str) -> None:
        """A picture (``name`` ends in .svg or .png); None is left out."""
        if data is None:
            return
        self._files[name] = data
        self._markdown += [f"![{caption}](plots/{name})", "", f"*{caption}*", ""]
        kind = "svg+xml" if name.endswith(".svg") else "png"
        source = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
        text = html.escape(caption)
        self._html.append(f'<figure><img src="{source}" alt="{text}"><figcaption>{text}</figcaption></figure>')

    def write(self, folder: Path) -> None:
        """Write ``report.md``, ``report.html`` and ``plots/``; figures of an older report that are gone are removed."""
        plots = folder / "plots"
        for name, data in self._files.items():
            write_atomic(plots / name, data)
        if plots.is_dir():
            for path in plots.iterdir():
                if path.suffix in (".svg", ".png") and path.name not in self._files:
                    path.unlink()
        write_atomic(folder / "report.md", ("\n".join(self._markdown).rstrip() + "\n").encode())
        page = (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(self.title)}</title>'
            f"<style>{CSS}</style><body>{''.join(self._html)}</body></html>\n"
        )
        write_atomic(folder / "report.html", page.encode())


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10000 else str(value)
    return str(value)
