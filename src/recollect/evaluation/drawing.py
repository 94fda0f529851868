"""Paper, ink and colours: a figure is drawn once, and serves as a PNG, as an SVG, and inside a page in two schemes.

Everything is drawn in the light colours. Inside a page each of them becomes a CSS variable, so that one drawing is
light or dark as the page is; that is why no two roles may have the same light colour.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from recollect.registry import missing_package

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROLES = {
    "paper": ("#ffffff", "#15181d"),
    "ink": ("#1c2024", "#e8ebef"),
    "muted": ("#59626d", "#a4aeba"),
    "faint": ("#e6e9ee", "#2f353e"),
    "rule": ("#c9d0d9", "#414a56"),
    "series-1": ("#0f5bd8", "#7db4ff"),
    "series-2": ("#8c2410", "#ef8a4a"),
    "series-3": ("#0a8060", "#4fdcae"),
    "series-4": ("#7a1fa0", "#c25cf5"),
    "series-5": ("#8a7000", "#f3da62"),
    "series-6": ("#39424e", "#c9ced6"),
}
"""Role → its colour on light and on dark. Tests hold them to contrast, and to eyes that see fewer colours."""

LIGHT = {role: light for role, (light, _) in ROLES.items()}
SERIES = [LIGHT[role] for role in ROLES if role.startswith("series")]

WIDTH = 460
"""Points across: on a phone the letters are still letters, on a desk they are as large as those of the text."""

TEXT = 12
SMALL = 10.5
DPI = 200

_FONTS = ("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "PingFang SC", "Hiragino Sans", "Microsoft YaHei")
_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_OF_COLOUR = {light: f"var(--{role})" for role, light in LIGHT.items()}


@contextmanager
def drawing() -> Iterator[None]:
    """Our letters and colours while a figure is made and written; a `$` is a dollar, and a missing glyph no alarm."""
    try:
        import matplotlib as mpl
        from matplotlib import font_manager
    except ImportError as error:
        raise missing_package(error, "drawing plots", "eval") from error
    installed = set(font_manager.get_font_names())
    ours: Any = {
        "font.family": [name for name in _FONTS if name in installed],
        "font.size": TEXT,
        "text.color": LIGHT["ink"],
        "text.parse_math": False,
        "axes.edgecolor": LIGHT["rule"],
        "axes.labelcolor": LIGHT["muted"],
        "xtick.color": LIGHT["rule"],
        "ytick.color": LIGHT["rule"],
        "xtick.labelcolor": LIGHT["muted"],
        "ytick.labelcolor": LIGHT["muted"],
        "grid.color": LIGHT["faint"],
        "svg.fonttype": "none",
        "svg.hashsalt": "recollect",
    }
    with mpl.rc_context(ours), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        yield


def canvas(height: float) -> Figure:
    """Blank paper, as wide as all plots are."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH / 72, height / 72), facecolor=LIGHT["paper"])


def panel(figure: Figure, *, top: float, height: float, left: float = 0, right: float = 0) -> Axes:
    """A place to draw, in points from the paper's edges, with a rule below and nothing else."""
    whole = figure.get_figheight() * 72
    axes = figure.add_axes((left / WIDTH, 1 - (top + height) / whole, (WIDTH - left - right) / WIDTH, height / whole))
    axes.set_facecolor("none")
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0, labelsize=SMALL, pad=5)
    axes.set_axisbelow(True)
    return axes


def series(position: int) -> tuple[str, str]:
    """The colour and the dashes of the nth series; after six colours the dashes change."""
    return SERIES[position % len(SERIES)], ("-", "--", ":", "-.")[position // len(SERIES) % 4]


def write(figure: Figure, path: Path, note: str = "") -> None:
    """The figure as a file, PNG or SVG by its name, with a note below it of what it was made of."""
    words = figure.text(0, -10 / (figure.get_figheight() * 72), note, size=SMALL, color=LIGHT["muted"], va="top")
    about: dict[str, Any] = {"metadata": {"Date": None}} if path.suffix == ".svg" else {"dpi": DPI}
    figure.savefig(path, bbox_inches="tight", pad_inches=0.2, **about)
    words.remove()


def inline(figure: Figure, key: str, title: str, description: str) -> str:
    """The figure as an `<svg>` for a page: its colours are the page's, and its ids begin with `key`."""
    written = io.BytesIO()
    figure.savefig(written, format="svg", metadata={"Date": None})
    root = ET.fromstring(written.getvalue())  # noqa: S314  (matplotlib wrote it this moment)
    for parent in list(root.iter()):
        for child in [child for child in parent if _idle(child)]:
            parent.remove(child)
    for element in root.iter():
        _adapt(element, key)
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-labelledby": f"{key}-title {key}-desc"}
    for place, (name, text) in enumerate((("title", title), ("desc", description))):
        said = ET.Element(f"{_SVG}{name}", {"id": f"{key}-{name}"})
        said.text = text
        root.insert(place, said)
    ET.register_namespace("", _SVG.strip("{}"))
    return ET.tostring(root, encoding="unicode")


def _idle(element: ET.Element) -> bool:
    """Whether it shows nothing: remarks, empty groups, and a style sheet that would speak for the whole page."""
    name = element.tag.rpartition("}")[2]
    return name in ("metadata", "style") or (name == "g" and not len(element))


def _adapt(element: ET.Element, key: str) -> None:
    """One element: ids that no other drawing has, the page's colours and letters, hundredths of a point."""
    if (own := element.attrib.pop("id", None)) and not element.tag.endswith("}g"):
        element.set("id", f"{key}-{own}")
    if target := element.attrib.pop(_HREF, None):
        element.set("href", f"#{key}-{target.removeprefix('#')}")
    for name, value in element.attrib.items():
        element.set(name, _short(value).replace("url(#", f"url(#{key}-"))
    if style := element.get("style"):
        plain = re.sub(r"font-family: [^;]*; ?", "", style)
        element.set("style", re.sub(r"#[0-9a-f]{6}\b", lambda found: _OF_COLOUR.get(found[0], found[0]), plain))
    element.tail = None
    if not element.tag.endswith("}text"):
        element.text = None


def _short(value: str) -> str:
    return re.sub(r"(\.\d\d)\d+", r"\1", " ".join(value.split()))
