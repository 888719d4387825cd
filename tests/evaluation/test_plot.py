"""The picture of an evaluation: the numbers that it shows. No model here: results are made up."""

import numpy as np
import pytest

from octavo.evaluation.plot import (
    draw,
    heat_map,
    layer_errors,
    map_places,
    map_title,
    position_edges,
    share_ticks,
    styles_of,
    trade_off,
    write_plot,
)

PNG = b"\x89PNG\r\n\x1a\n"
TENTHS = [number / 10 for number in range(11)]


def row(attention="dense", budget=1.0, depth=4096, score=0.75, error=0.0625, share=None, **more):
    share = budget if share is None else share
    own = {"attention": attention, "budget": budget, "depth": depth, "bytes_read_share": share}
    return {**own, "samples": 4, "score": score, "standard_error": error, "kl_divergence": 0.01 / budget, **more}


def result(task, rows, higher=True, metric="found"):
    names = {"model": {"name": "tiny.gguf"}, "data": {"name": "novel.md"}}
    return {"task": task, "metric": metric, "higher_is_better": higher, **names, "results": rows, "left_out": []}


def grid(depths=(4096, 8192)):
    runs = [("dense", 1.0), ("quest", 0.25), ("quest", 0.125), ("duo", 1.0)]
    return [row(*run, depth, by_position=[[0.25, 1.0], [0.75, 0.0]]) for run in runs for depth in depths]


def panels(figure):
    """The axes of a figure by their titles, with line ends as spaces."""
    return {axes.get_title().replace("\n", " "): axes for axes in figure.axes}


def line(axes, name):
    """What a line with error bars shows: its points, and its bars from below to above."""
    drawn = next(container for container in axes.containers if container.get_label() == name)
    bars = drawn.lines[2][0].get_segments()
    return drawn.lines[0].get_xydata().tolist(), [sorted(bar[:, 1].tolist()) for bar in bars if len(bar)]


@pytest.mark.parametrize(
    "shown",
    [
        result("passkey", grid()),
        result("needle", grid(depths=[4096])),
        result("needle", [row(error=None, by_position=[[0.5, 1.0]])]),
        result("perplexity", [row(depth=depth) for depth in (1024, 2048, 4096, 8192)], higher=False),
        result("qa", [row(), row("streaming", 0.25, share=0.0, error=None)]),
        result("agreement", [row(output_errors=[0.0, 0.0]), row("quest", 0.25, output_errors=[0.0, 0.5])]),
        result("agreement", [row(output_errors=[0.0, 0.0])]),
    ],
    ids=["passkey", "one depth", "one sample", "four depths", "nothing read", "agreement", "agreement of dense alone"],
)
@pytest.mark.filterwarnings("error")
def test_each_kind_of_result_is_written(shown, tmp_path):
    path = tmp_path / "picture.png"
    write_plot(shown, path)
    content = path.read_bytes()
    assert content.startswith(PNG)
    assert int.from_bytes(content[16:20]) >= 780  # its width


def test_the_title_and_the_axes_say_what_is_shown():
    figure = draw(result("perplexity", [row()], higher=False, metric="bits per character"))
    assert figure.get_suptitle() == "perplexity: tiny.gguf, novel.md"
    axes = panels(figure)["4,096 tokens"]
    assert axes.get_ylabel() == "bits per character\n(lower is better)"
    assert draw(result("qa", [row()])).axes[0].get_ylabel() == "found\n(higher is better)"


def test_lines_show_scores_and_standard_errors():
    rows = [row(score=0.75), row("quest", 0.5, score=0.5), row("quest", 0.25, score=0.25), row("duo", share=0.5)]
    axes = panels(draw(result("qa", rows)))["4,096 tokens"]
    assert line(axes, "quest") == ([[0.25, 0.25], [0.5, 0.5]], [[0.1875, 0.3125], [0.4375, 0.5625]])
    assert line(axes, "duo") == ([[0.5, 0.75]], [[0.6875, 0.8125]])
    assert [list(each.get_ydata()) for each in axes.lines if each.get_label() == "dense"] == [[0.75, 0.75]]
    (band,) = axes.patches
    assert (band.get_y(), band.get_height()) == (0.6875, 0.125)


def test_agreement_is_drawn_as_divergence_on_a_log_scale():
    rows = [row(kl_divergence=0.0), row("quest", 0.5, kl_divergence=0.01), row("quest", 0.25, kl_divergence=0.5)]
    axes = panels(draw(result("agreement", rows)))["4,096 tokens"]
    assert line(axes, "quest")[0] == [[0.25, 0.5], [0.5, 0.01]]
    assert (axes.get_yscale(), axes.get_ylabel()) == ("log", "KL to dense\n(lower is better)")
    assert [each.get_label() for each in axes.lines if each.get_label() == "dense"] == []


def test_what_has_no_standard_error_has_no_bar_and_no_band():
    rows = [row(error=None), row("quest", 0.25, score=0.5), row("quest", 0.125, score=0.25, error=None)]
    axes = panels(draw(result("qa", rows)))["4,096 tokens"]
    points, bars = line(axes, "quest")
    assert points == [[0.125, 0.25], [0.25, 0.5]]
    assert bars == [[0.4375, 0.5625]]
    assert not axes.patches


def test_each_depth_has_a_panel_and_there_is_one_legend():
    rows = [row(depth=depth) for depth in (8192, 1024, 2048, 4096)] + [row("quest", 0.25, depth=2048, score=0.5)]
    figure = draw(result("qa", rows))
    shown = panels(figure)
    assert list(shown) == ["1,024 tokens", "2,048 tokens", "4,096 tokens", "8,192 tokens"]
    assert [title for title, axes in shown.items() if axes.containers] == ["2,048 tokens"]
    (legend,) = figure.subfigs[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["dense", "quest"]


def test_trade_off_takes_one_depth_in_order_of_what_is_read():
    much, little, other = row("quest", 0.5), row("quest", 0.25), row("quest", 0.125, depth=8192)
    assert trade_off([row(), much, other, little], 4096) == {"dense": [row()], "quest": [little, much]}


@pytest.mark.parametrize(
    ("shares", "expected"),
    [([1.0], [1, 2]), ([1, 0.24], [1, 2, 4]), ([0.26, 1], [1, 2, 4]), ([0.0], [1, 2]), ([2**-9], [1, 4, 16, 64, 256])],
)
def test_ticks_halve_down_to_what_is_read(shares, expected):
    assert share_ticks(shares) == expected


def test_colours_and_markers_go_by_the_position_in_the_table_of_names():
    styles = styles_of(
        ["squeezed2", "duo", "streaming", "quest", "dense", "h2o", "squeezed", "sparq", "window", "sketch", "topk"]
    )
    assert {name: (style.colour, style.marker) for name, style in styles.items()} == {
        "dense": ("#555555", ""),
        "streaming": ("#e69f00", "s"),
        "h2o": ("#56b4e9", "v"),
        "quest": ("#0072b2", "o"),
        "sparq": ("#009e73", "^"),
        "squeezed": ("#d55e00", "D"),
        "squeezed2": ("#cc79a7", "P"),
        "duo": ("#6a3d9a", "X"),
        "window": ("#ad1457", "p"),
        "sketch": ("#17becf", ">"),
        "topk": ("#b2df8a", "d"),
    }


def test_a_method_looks_the_same_in_all_pictures():
    first, second = styles_of(["dense", "quest", "duo+quest"]), styles_of(["plan", "duo+quest", "quest", "quest"])
    assert first["quest"] == second["quest"]
    every = styles_of(["dense", "streaming", "h2o", "quest", "sparq", "squeezed", "squeezed2", "duo", "plan", "duo+x"])
    assert len({style.colour for style in every.values()}) == len({style.marker for style in every.values()}) == 10
    assert len(styles_of(f"other{number}" for number in range(12))) == 12


def test_parameters_change_the_line_and_not_the_colour():
    styles = styles_of(
        ["quest", "quest:paper", "quest:tokens=1024,dense_layers=0", "sparq:paper", "duo:sinks=4+quest:r=1"]
    )
    plain, paper, tokens, sparq, duo = styles.values()
    assert plain[:2] == paper[:2] == tokens[:2] != sparq[:2]
    assert [plain.line, paper.line, tokens.line, sparq.line] == ["-", "--", ":", "-"]
    assert [style.hollow for style in styles.values()] == [False, True, True, True, True]
    assert duo[:2] == styles_of(["quest", "duo+quest"])["duo+quest"][:2]


def test_many_attentions_have_no_heat_maps():
    def figure(n):
        names = ["dense", *(f"quest:tokens={number}" for number in range(1, n))]
        return draw(result("passkey", [row(name, by_position=[[0.5, 1.0]]) for name in names]))

    assert "quest:tokens=9" in panels(figure(10))
    assert [axes.get_title() for axes in figure(11).axes] == ["4,096 tokens"]
    assert figure(11).get_size_inches()[0] < 8


@pytest.mark.parametrize(
    ("name", "budget", "title"),
    [
        ("quest:paper", 0.125, "quest:paper\nbudget 0.125"),
        ("quest:tokens=1024,dense_layers=0", 1.0, "quest:\ntokens=1024,\ndense_layers=0"),
    ],
)
def test_titles_of_heat_maps_are_no_wider_than_the_map(name, budget, title):
    assert map_title(name, budget) == title


def test_a_heat_map_has_mean_scores_of_positions_that_are_the_same_at_all_depths():
    rows = [
        row(depth=1024, by_position=[[0.05, 1.0], [0.5, 0.0], [0.95, 1.0], [0.5, 1.0]]),
        row(depth=2048, by_position=[[0.5, 0.0], [0.95, 0.0], [0.05, 1.0]]),
    ]
    edges = position_edges(rows)
    np.testing.assert_allclose(edges, [0, 0.275, 0.725, 1])
    np.testing.assert_array_equal(heat_map(rows, [1024, 2048], edges), [[1, 1], [0.5, 0], [1, 0]])


def test_positions_that_differ_over_depths_are_binned_by_tenths():
    rows = [
        row(depth=1024, by_position=[[0.0, 1.0], [0.3, 1.0], [0.35, 0.0], [1.0, 0.5]]),
        row(depth=4096, by_position=[[0.61, 0.25]]),
    ]
    edges = position_edges(rows)
    assert edges.tolist() == TENTHS
    expected = np.full((10, 3), np.nan)
    expected[[0, 3, 9], 0] = 1, 0.5, 0.5
    expected[6, 2] = 0.25
    np.testing.assert_array_equal(heat_map(rows, [1024, 2048, 4096], edges), expected)


def test_one_position_is_one_bin():
    assert position_edges([row(by_position=[[0.5, 1.0]])]).tolist() == [0, 1]


def test_heat_maps_stand_in_a_line_for_each_budget():
    runs = [("dense", 1.0), ("quest", 0.125), ("quest", 0.25), ("sparq", 0.125), ("duo", 1.0)]
    places = map_places([row(*run, depth) for run in runs for depth in (1024, 2048)])
    assert places == dict(zip(runs, [(0, 0), (1, 1), (0, 1), (1, 2), (0, 3)], strict=True))
    assert map_places([row(), row("quest", 1.0), row("quest", 0.5)]) == {
        ("dense", 1.0): (0, 0),
        ("quest", 1.0): (0, 1),
        ("quest", 0.5): (1, 1),
    }
    assert map_places([row()]) == {("dense", 1.0): (0, 0)}


def test_heat_maps_show_each_run():
    rows = [
        row(by_position=[[0.25, 1.0], [0.75, 1.0]]),
        row("quest", 0.25, by_position=[[0.25, 1.0], [0.75, 0.5]]),
        row(depth=8192, by_position=[[0.25, 1.0], [0.75, 0.0]]),
    ]
    shown = panels(draw(result("needle", rows)))
    assert list(shown)[:4] == ["4,096 tokens", "8,192 tokens", "dense", "quest budget 0.25"]
    meshes = [shown[name].collections[0] for name in ("dense", "quest budget 0.25")]
    assert [mesh.get_array().tolist() for mesh in meshes] == [[[1, 1], [1, 0]], [[1, None], [0.5, None]]]
    assert [mesh.get_clim() for mesh in meshes] == [(0, 1), (0, 1)]
    axes = shown["dense"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["4,096", "8,192"]
    assert axes.get_ylim() == (1, 0)


@pytest.mark.parametrize("task", ["qa", "repetition", "agreement"])
def test_other_tasks_have_no_heat_maps(task):
    assert list(panels(draw(result(task, grid())))) == ["4,096 tokens", "8,192 tokens"]


def test_errors_by_layer_are_of_the_smallest_budgets_at_the_largest_depth():
    rows = [
        row(depth=8192, output_errors=[0.0, 0.0]),
        row("quest", 0.25, 4096, output_errors=[9.0, 9.0]),
        row("quest", 0.125, 8192, output_errors=[0.0, 0.5]),
        row("quest", 0.25, 8192, output_errors=[0.0, 0.25]),
        row("sparq", 0.25, 8192, output_errors=[0.5, 0.75]),
        row("h2o", 0.25, 4096, output_errors=[9.0, 9.0]),
    ]
    assert layer_errors(rows) == {"quest": [0.0, 0.5], "sparq": [0.5, 0.75]}
    axes = panels(draw(result("agreement", rows)))["Each attention at its smallest budget, 8,192 tokens"]
    lines = {each.get_label(): each.get_xydata().tolist() for each in axes.lines}
    assert lines == {"quest": [[0, 0], [1, 0.5]], "sparq": [[0, 0.5], [1, 0.75]]}
    assert "Each attention at its smallest budget, 8,192 tokens" not in panels(draw(result("qa", rows)))
