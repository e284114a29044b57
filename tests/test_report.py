"""Reports: one page that needs nothing else, that says everything, and that browsers lay out."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rooflm.calc.errors import Exit
from rooflm.calc.report import page
from rooflm.calc.study import prepare
from rooflm.calc.study_answer import answer, rows_of
from rooflm.calc.study_file import read_study

from .helpers import Terminal

ROOT = Path(__file__).resolve().parents[1]
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Outline(HTMLParser):
    """What a page is made of; fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a tag."""
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that closes itself."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Close a tag."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note a text outside of styles and scripts."""
        if not self.open or self.open[-1] not in ("style", "script"):
            self.words.append(data)

    def of(self, *names: str) -> list[dict[str, str | None]]:
        """List the attributes of all tags of some names."""
        return [attributes for tag, attributes in self.tags if tag in names]


def made(path: str) -> tuple[str, dict[str, Any]]:
    """Make a page, and the answer behind it."""
    ready = prepare(read_study(path))
    rows, _ = rows_of(ready, lambda done, of: None)
    told = answer(ready, rows)
    return page(ready, told), told


@pytest.fixture(scope="module")
def gqa() -> tuple[str, dict[str, Any]]:
    """Make the page of the study with the most parts."""
    return made(str(ROOT / "studies/mha_gqa.yaml"))


def test_a_page_needs_nothing_else(gqa: tuple[str, dict[str, Any]]) -> None:
    """No script, style, font or picture is fetched; links lead to sources alone."""
    outline = Outline(gqa[0])

    assert outline.of("link", "iframe", "object", "embed", "base", "img") == []
    assert all("src" not in attributes for _, attributes in outline.tags)
    assert not re.search(r"@import|url\((?!#)", gqa[0])
    for tag, attributes in outline.tags:
        target = attributes.get("href") or attributes.get("xlink:href")
        if target is not None:
            assert target.startswith("#" if tag != "a" else "https://"), target


def test_names_inside_a_page_are_its_own(gqa: tuple[str, dict[str, Any]]) -> None:
    """Several figures in one page share no id, and what refers to one finds it."""
    outline = Outline(gqa[0])
    ids = [attributes["id"] for _, attributes in outline.tags if attributes.get("id")]

    assert len(ids) == len(set(ids)) > 50
    used = re.findall(r'(?:url\(|href=")#([^")]+)', gqa[0])
    assert used
    assert set(used) <= set(ids)


def test_figures_have_words(gqa: tuple[str, dict[str, Any]]) -> None:
    """Every figure has a label and a description that tells its lines in numbers."""
    text, told = gqa
    outline = Outline(text)
    pictures = [attributes for attributes in outline.of("svg") if attributes.get("role") == "img"]
    said = " ".join(" ".join(outline.words).split())

    assert len(pictures) == len(outline.of("figure")) == 3
    for picture in pictures:
        assert picture["aria-label"]
        described = picture["aria-describedby"]
        assert f'<p id="{described}">' in text
    last = next(r for r in told["rows"] if (r["variant"], r["batch"]) == ("MQA", 256))
    assert "MQA: time of a step [ms] 6.556 at batch [sequences] 1, " in said
    assert f"{1e3 * last['time_s']:.4g} at 256" in said


def test_a_page_says_everything(gqa: tuple[str, dict[str, Any]]) -> None:
    """Rows, expectations, commands, sources, assumptions and the study itself are on the page."""
    text, told = gqa
    said = " ".join(Outline(text).words)

    for row in told["rows"]:
        assert f'data-value="{row["memory_bytes"]!r}"' in text
    for variant in told["variants"]:
        assert variant["command"] in said
    for line in (*told["assumptions"], told["says"], told["facts"]["quality"]["source"]):
        assert line in said
    for name in ("mha_gqa", "batch_sweep"):
        assert (ROOT / f"studies/{name}.yaml").read_text("utf-8") in said
    assert f"expected: {len(told['expectations'])} of {len(told['expectations'])} hold" in said


def test_formulas_are_rendered(gqa: tuple[str, dict[str, Any]]) -> None:
    """Formulas are MathML of the symbols that compute: 2 K H L S B and the bytes of an element."""
    formulas = [
        re.sub(r"<[^>]+>", " ", unescape(m)) for m in re.findall(r"<math.*?</math>", gqa[0])
    ]
    letters = [set(formula.split()) for formula in formulas]

    assert any({"kv_cache_bytes", "2", "K", "H", "L", "S", "B"} <= found for found in letters)
    assert any({"time_s", "bytes", "β"} <= found for found in letters)


def test_layouts_have_formulas_of_bounds() -> None:
    """Messages are measured curves without a formula: times of layouts are explained as bounds."""
    text, told = made(str(ROOT / "studies/copies_shards.yaml"))

    assert text.count("<math") > 20
    assert len(told["rows"]) == 12


def test_axes_are_named_as_what_they_are(tmp_path: Path) -> None:
    """A page names all machines of an axis, and says that a command is of the first of them."""
    text, told = made(str(ROOT / "studies/hardware.yaml"))

    assert told["hardware"][:2] == ["a100-sxm-80gb", "h100-sxm"]
    assert "llama-3-8b on 7 machines" in text
    assert "Each command is of the first on; the others are alike." in text


def test_what_a_study_says_is_only_text(tmp_path: Path) -> None:
    """Markup in titles, names and sources is shown and not obeyed."""
    path = tmp_path / "s.yaml"
    path.write_text(
        'title: "<script>alert(1)</script>"\nsays: "a <b>bold</b> claim & more"\n'
        "base: {model: llama-2-13b, on: h100-sxm}\nmeasure: [time_s]\n"
        "facts: {q: {source: '<img src=x onerror=y>', label: '\"><i>', values: {base: 1}}}\n",
        "utf-8",
    )
    text, _ = made(str(path))
    outline = Outline(text)

    assert len(outline.of("script")) == 1
    assert outline.of("b", "i", "img") == []
    assert "<b>bold</b>" in "".join(outline.words)


def test_report_writes_a_page(
    rooflm: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rooflm report` writes beside where it runs, or where it is told; `-` is stdout."""
    monkeypatch.chdir(tmp_path)
    study = str(ROOT / "studies/cache_budget.yaml")
    assert rooflm("report", study).code == Exit.DONE
    whole = (tmp_path / "cache_budget.html").read_text("utf-8")
    assert rooflm("report", study, "-o", "-").out == whole
    assert rooflm("report", study, "-o", "no/such/page.html").code == Exit.USAGE
    (tmp_path / "many.yaml").write_text(
        "base: {model: llama-2-13b, on: h100-sxm}\ngrid: {batch: 1:6000}\nmeasure: [time_s]\n"
    )
    ran = rooflm("report", "many.yaml")
    assert ran.code == Exit.USAGE
    assert "6,000 rows are more" in ran.err


# A browser, where there is one; continuous integration installs it and asks for it.

BROWSER = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")

LOOK = """<script>
const head = document.querySelector("table.sortable th:nth-child(3) [role=button]");
const cells = () => [...document.querySelectorAll("table.sortable tbody td:nth-child(3)")];
const values = () => cells().map((cell) => Number(cell.dataset.value));
head.click(); const up = values(); head.click(); const down = values();
const scrolled = [...document.querySelectorAll("figure .scroll")];
const boxes = scrolled.map((box) => box.getBoundingClientRect());
document.querySelectorAll("details").forEach((d) => { d.open = true; });
const out = document.createElement("pre");
out.id = "seen";
out.textContent = JSON.stringify({
  width: innerWidth, page: document.documentElement.scrollWidth, up, down,
  figures: boxes.map((b) => [b.left, b.right, b.height]),
  maths: [...document.querySelectorAll("math")].map((m) => m.getBoundingClientRect().height),
  ink: getComputedStyle(document.body).color,
  paper: getComputedStyle(document.body).backgroundColor,
});
document.body.append(out);
</script></body>"""


@pytest.mark.parametrize("width", [500, 1280])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_browser_lays_it_out(
    gqa: tuple[str, dict[str, Any]], tmp_path: Path, width: int, dark: bool
) -> None:
    """Headless Chromium: nothing wider than the page, figures whole, columns sort, ink on paper."""
    if BROWSER is None:
        assert not os.environ.get("ROOFLM_NEEDS_BROWSER"), "there is no Chromium"
        pytest.skip("no Chromium here")
    path = tmp_path / "page.html"
    path.write_text(gqa[0].replace("</body>", LOOK), "utf-8")
    words = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    ran = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    found = re.search(r'<pre id="seen">(.*?)</pre>', ran.stdout, re.S)
    assert found is not None, ran.stderr[-2000:]
    seen = json.loads(unescape(found[1]))

    assert seen["width"] == width
    assert seen["page"] <= width
    assert all(left >= 0 and right <= width and height > 100 for left, right, height in
               seen["figures"])  # fmt: skip
    assert seen["up"] == sorted(seen["up"])
    assert seen["down"] == sorted(seen["up"], reverse=True)
    assert len(seen["maths"]) > 5
    assert min(seen["maths"]) > 8
    ink, paper = (sum(map(int, re.findall(r"\d+", seen[k])[:3])) / 765 for k in ("ink", "paper"))
    assert (ink > 0.85 and paper < 0.15) if dark else (ink < 0.15 and paper > 0.85)
