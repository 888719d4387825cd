"""Find the task that each method does worst, from results of `octavo eval`.

    octavo eval TASK ... -o json > TASK.json    # for each task, with the same attentions
    python benchmarks/worst_tasks.py *.json

What is compared is the share of dense attention's score that a method keeps, and the KL divergence from dense
attention's next tokens. A score says nothing where dense attention itself has less than .1: such tasks are named below
the table, and only their KL counts. A file holds one result, or a list of them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from octavo.cli.render import markdown_table
from octavo.evaluation.results import LEAST
from octavo.runtime.methods import DENSE
from octavo.runtime.methods.parameters import written


def results_in(paths: list[Path]) -> list[dict[str, Any]]:
    """Return the results in files."""
    contents = [json.loads(path.read_text("utf-8")) for path in paths]
    return [result for content in contents for result in (content if isinstance(content, list) else [content])]


def entries_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return an entry for each row but dense attention's: the task's title, and the share that the row keeps."""
    title = f"{result['task']}:{written(result['parameters'])}".removesuffix(":")
    dense = {row["depth"]: row["score"] for row in result["results"] if row["attention"] == DENSE}
    entries = []
    for row in result["results"]:
        if row["attention"] != DENSE and row["score"] is not None:
            score, reference = row["score"], dense[row["depth"]]
            if not result["higher_is_better"]:
                score, reference = reference, score
            name = f"{title}, {result['data']['name']}, {row['depth']:,}"
            kept = score / reference if reference >= LEAST else None
            entries.append({**row, "task": name, "dense": dense[row["depth"]], "kept": kept})
    return entries


def worst_row(entries: list[dict[str, Any]]) -> list[str]:
    """Return the cells of a method: the task where it keeps least, and the one where KL is largest."""
    judged = [entry for entry in entries if entry["kept"] is not None]
    least = min(judged, key=lambda entry: entry["kept"], default=None)
    farthest = max(entries, key=lambda entry: entry["kl_divergence"])
    of_score = ["-"] * 5
    if least is not None:
        error = least["difference_standard_error"]
        figures = [f"{least['kept']:.2f}", f"{least['score']:.3f}", f"{least['dense']:.3f}"]
        of_score = [least["task"], *figures, "-" if error is None else f"{error:.3f}"]
    return [*of_score, farthest["task"], f"{farthest['kl_divergence']:.4f}"]


def table_of(results: list[dict[str, Any]]) -> str:
    """Return the table of the worst tasks, and the names of those that dense attention cannot do."""
    entries = [entry for result in results for entry in entries_of(result)]
    methods = dict.fromkeys((entry["attention"], entry["budget"]) for entry in entries)
    rows = []
    for attention, budget in methods:
        own = [entry for entry in entries if (entry["attention"], entry["budget"]) == (attention, budget)]
        rows.append([attention, "-" if budget == 1 else f"{budget:g}", str(len(own)), *worst_row(own)])
    heads = ["attention", "budget", "tasks", "keeps least of", "kept", "score", "dense", "error", "largest KL", "KL"]
    undone = dict.fromkeys(entry["task"] for entry in entries if entry["kept"] is None)
    below = f"\n\nDense attention scores below {LEAST:g}: {'; '.join(undone)}." if undone else ""
    return f"{markdown_table(heads, rows)}{below}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", help="results of `octavo eval -o json`")
    print(table_of(results_in(parser.parse_args().results)))


if __name__ == "__main__":
    main()
