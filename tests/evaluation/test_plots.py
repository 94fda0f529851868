"""The plots: they show what was measured, with honest axes and colours that everybody can distinguish."""

import itertools
import re
import subprocess
import sys
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from support import samples

from recollect.errors import UsageError
from recollect.evaluation import plots, results
from recollect.evaluation.plots import ROLES, drawing, inline, write

# Machado, Oliveira and Fernandes (2009), severity 1: what an eye without one kind of cone sees, in linear RGB.
EYES = {
    "all cones": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
)
WHITE = np.array([0.95047, 1, 1.08883])


def linear(colour):
    value = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def contrast(a, b):
    high, low = sorted((linear(a) @ TO_XYZ[1], linear(b) @ TO_XYZ[1]), reverse=True)
    return (high + 0.05) / (low + 0.05)


def lab(rgb):
    scaled = TO_XYZ @ np.clip(rgb, 0, 1) / WHITE
    x, y, z = np.where(scaled > 216 / 24389, np.cbrt(scaled), (24389 / 27 * scaled + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def figures():
    """One of each plot."""
    run = samples.run()
    return {
        "systems": lambda: plots.systems_figure(results.systems(run)),
        "sweep": lambda: plots.sweep_figure(results.sweep_chart(samples.sweep())),
        "duel": lambda: plots.gains_figure(results.system_pairs(run)[0]),
        "overlap": lambda: plots.overlap_figure(results.source_pairs(samples.overlap())),
        "latency": lambda: plots.latency_figure(results.systems(run)),
    }


@pytest.mark.parametrize("scheme", [0, 1])
def test_text_and_lines_have_enough_contrast(scheme):
    """4.5 to 1 in light and dark."""
    paper = ROLES["paper"][scheme]
    writing = [role for role in ROLES if role.startswith("series") or role in ("ink", "muted")]
    assert len(writing) == 8
    assert {
        role: contrast(ROLES[role][scheme], paper) for role in writing if contrast(ROLES[role][scheme], paper) < 4.5
    } == {}


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize("scheme", [0, 1])
def test_series_colours_can_be_distinguished(eye, scheme):
    """Any two differ by at least 12 in CIELAB, with every kind of colour vision."""
    seen = [
        lab(np.array(EYES[eye]) @ linear(colours[scheme]))
        for role, colours in ROLES.items()
        if role.startswith("series")
    ]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 12


def test_no_two_roles_share_a_light_colour():
    """A colour in a drawing says which role it has."""
    assert len({light for light, _ in ROLES.values()}) == len(ROLES)


@pytest.mark.parametrize("name", figures())
def test_plot_in_a_page_uses_its_colours_and_unique_ids(name):
    """No original colour is left, every id has the plot's prefix, and text stays text."""
    with drawing():
        svg = inline(figures()[name](), f"plot-{name}", "A title & more", "What <it> shows")
    root = ET.fromstring(svg)
    assert re.findall(r"#[0-9a-f]{6}\b|rgb", svg) == []
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    assert all(one.startswith(f"plot-{name}-") for one in ids)
    used = re.findall(r'(?:href="|url\()#([^")]+)', svg)
    assert used
    assert set(used) <= set(ids)
    assert [child.text for child in root[:2]] == ["A title & more", "What <it> shows"]
    assert "font-family" not in svg
    assert sum(element.tag.endswith("}text") for element in root.iter()) > 8


@pytest.mark.parametrize("name", figures())
def test_plot_is_deterministic(name):
    """The same numbers make the same drawing, to the letter."""
    with drawing():
        assert inline(figures()[name](), "a", "t", "d") == inline(figures()[name](), "a", "t", "d")


def test_sweep_is_written_in_the_format_of_its_name(tmp_path):
    """.png or .svg, both with their origin below the plot."""
    plots.sweep_plot(samples.sweep(), tmp_path / "sweep.png")
    plots.sweep_plot(samples.sweep(), tmp_path / "sweep.svg")
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "sweep.svg").read_text(encoding="utf-8")
    assert ">knee: 50<" in svg
    assert "300 questions, 5,183 documents, fingerprint 3fa8c1d2e4b59607" in svg


def test_sweep_without_rows_is_refused(tmp_path):
    """There is nothing to draw."""
    with pytest.raises(UsageError, match="no rows to draw"):
        plots.sweep_plot({"rows": [{"options": {}, "mean": None}]}, tmp_path / "sweep.png")


def test_note_is_only_in_the_file(tmp_path):
    """Writing a file leaves the figure unchanged."""
    with drawing():
        figure = figures()["overlap"]()
        write(figure, tmp_path / "overlap.png", "a note")
        assert figure.texts == []


def test_whiskers_are_the_interval():
    """Each system's line is its interval, its dot its mean, in each measure's panel."""
    run = samples.run()
    with drawing():
        axes = plots.systems_figure(results.systems(run)).axes
    assert len(axes) == 2
    for panel, measure in zip(axes, ("nDCG@10", "R@20"), strict=True):
        drawn = {tuple(np.round(line.get_xdata(), 9)) for line in panel.lines if len(set(line.get_xdata())) == 2}
        wanted = [system["measures"][measure] for system in run["systems"].values()]
        assert {tuple(np.round((one["low"], one["high"]), 9)) for one in wanted} <= drawn
        low, high = panel.get_xlim()
        assert all(low < one["low"] and one["high"] < high for one in wanted)


@pytest.mark.parametrize("methods", [("rrf",), ("rrf", "weighted"), ("rrf", "weighted", "borda")])
def test_every_point_of_a_curve_has_its_interval(methods):
    """Bands for one or two curves, vertical lines for more; the axis includes all."""
    report = samples.sweep(methods)
    with drawing():
        (axes,) = plots.sweep_figure(results.sweep_chart(report)).axes
    lines = [segment for drawn in axes.collections for segment in getattr(drawn, "get_segments", list)()]
    bands = [path.vertices for drawn in axes.collections for path in drawn.get_paths()]
    seen = {round(float(y), 9) for shape in (*lines, *bands) for _, y in shape}
    assert {round(row[end], 9) for row in report["rows"] for end in ("low", "high")} <= seen
    low, high = axes.get_ylim()
    assert all(low < row["low"] and row["high"] < high for row in report["rows"])
    assert axes.get_xscale() == "log"


def test_bars_begin_at_zero_and_share_one_scale():
    """Wins and losses."""
    made = figures()
    with drawing():
        overlap, duel, latency = made["overlap"]().axes, made["duel"]().axes[0], made["latency"]().axes
    assert [axes.get_xlim() for axes in overlap] == [(0, 1)] * 2
    assert [sum(bar.get_width() for bar in axes.patches) for axes in overlap] == pytest.approx([1, 1])
    low, high = duel.get_ylim()
    assert low == -high
    assert all(axes.get_ylim()[0] == 0 for axes in latency)


def test_every_search_is_in_the_histogram():
    """All systems on one axis."""
    run = samples.run()
    run["systems"]["vector"]["latency_ms"]["values"] = [0.0, 0.001, 5.0, 90_000.0]
    with drawing():
        axes = plots.latency_figure(results.systems(run)).axes
    counts = [sum(patch.get_data().values.sum() for patch in panel.patches) for panel in axes]
    assert counts == [60, 60, 4]
    assert len({panel.get_xlim() for panel in axes}) == 1


def test_best_of_each_method_is_named():
    """Of forty curves three have names and the rest are thin lines."""
    found = results.sweep_chart(samples.sweep(ks=tuple(range(1, 14))))
    assert [curve.name for curve in found.curves] == ["borda k=1", "weighted k=1", "rrf k=1"]
    assert len(found.others) == 36
    assert found.knee == 50


def test_without_depths_another_number_is_the_axis():
    """For example weights."""
    rows = [{"options": {"fusion": "weighted", "vector_weight": w / 10, "fetch_k": 100}, "mean": w} for w in range(5)]
    found = results.sweep_chart({"rows": rows, "measure": "R@10"})
    assert (found.axis, len(found.curves), len(found.curves[0].points)) == ("vector_weight", 1, 5)


@pytest.mark.ci
@pytest.mark.parametrize("text", ["$x^2$", "a_b", "<b>", "100 %", "日本", "\\frac"])
def test_name_is_drawn_literally(text):
    """Not as mathematics or markup."""
    run = samples.run(10, (text, "other"))
    with drawing():
        svg = inline(plots.systems_figure(results.systems(run)), "a", "t", "d")
    assert text in [element.text for element in ET.fromstring(svg).iter()]


@pytest.mark.ci
def test_drawing_has_no_side_effects():
    """No window system, no changed setting of matplotlib; without plots it is not imported."""
    code = """
import sys, recollect.cli.lab.run, recollect.evaluation.report as page
assert "matplotlib" not in sys.modules
import matplotlib
names = [name for name in matplotlib.rcParams if name != "backend"]  # asking for that one starts pyplot
before = [matplotlib.rcParams[name] for name in names]
page.render([{"pairs": [{"a": "x", "b": "y", "both": 1, "only_a": 2, "only_b": 3}]}])
assert [matplotlib.rcParams[name] for name in names] == before
assert "matplotlib.pyplot" not in sys.modules
"""
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_missing_matplotlib_names_the_extra(monkeypatch, tmp_path):
    """The message says what to install."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError) as caught:
        plots.sweep_plot(samples.sweep(), tmp_path / "sweep.png")
    assert "recollect-search[eval]" in caught.value.hint


def test_method_has_one_colour_in_every_plot():
    """Also the default; two curves of one method differ."""
    with drawing():
        systems = plots.systems_figure(results.systems(samples.run(20, ("default", "rrf", "mine")))).axes[0]
        sweep = plots.sweep_figure(results.sweep_chart(samples.sweep(("rrf", "blend")))).axes[0]
        curves = plots.sweep_figure(results.sweep_chart(samples.sweep(("rrf",), ks=(1, 60)))).axes[0]
    drawn = {line.get_label(): line.get_color() for line in sweep.lines}
    labels = [text.get_text() for text in systems.get_yticklabels()]
    dots = [line.get_color() for line in systems.lines if len(line.get_xdata()) == 1]
    among = dict(zip(labels, dots, strict=True))
    assert (among["default"], among["rrf"]) == (drawn["blend"], drawn["rrf"])
    assert len(set(among.values())) == 3
    assert len({line.get_color() for line in curves.lines if line.get_label().startswith("k=")}) == 2
