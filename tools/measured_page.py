"""Write docs/measured/README.md from the reports beside it.

    python tools/measured_page.py

A report is docs/measured/WHO/NAME.json, from `octavo bench --report` and `octavo eval suite --report`. WHO is the name
by which its owner wants to be known.
"""

from __future__ import annotations

from pathlib import Path

from octavo.cli.render import markdown_table
from octavo.evaluation.report import read_report
from octavo.evaluation.report_tables import MOST_KL, Table, quality_table, speed_table

MEASURED = Path(__file__).parent.parent / "docs" / "measured"

HEAD = """# Measured by owners

Speed and quality of octavo on machines of its users. Measure yours in two commands, each of about an hour at most; both
write into one file, and continue after an interruption:

```
octavo bench --report mine.json -m MODEL.gguf
octavo eval suite --report mine.json -m MODEL.gguf
```

The first line of a command says how long it takes. Depths and samples are chosen for that; `--depths` and `--samples`
choose others, and `--peers openvino,ik` measures other engines beside. Then open an issue of the kind *Measurements*
with the file. It has no names of users, machines or folders: see for yourself, it is text.

Models whose names begin with `random-` have random weights in the shape of the model that they name, in Q4_0
(`benchmarks/write_random_llama.py`, `benchmarks/write_random_gemma.py`): their times count, their texts do not.

[evaluation.md](../evaluation.md#reports) says what is measured. `python tools/measured_page.py` wrote this page.
"""

SPEED = f"""
## Speed

*Dense* and *auto* are octavo's attentions, and llama.cpp runs in turns with them. *Fastest method* is octavo's, and
*fastest peer* another engine of the same run: each the fastest whose KL divergence to *dense* is at most {MOST_KL:g}.
It is not known of OpenVINO, which has no logits.
"""

QUALITY = """
## Quality

Means over tasks, from 0 to 1. Tasks that *dense* cannot do, with a score below .1, say nothing of a method: they are
counted and left out. Beside each method are its mean difference to *dense* on the same samples, the standard error of
the difference, and the share of the bytes that it read. For the error, each task has one more pair of samples for each
side, as for [the bound of a loss](../evaluation.md#how-octavo-measures): a few equal scores do not prove that there is
no difference. A method that could not read the share in some tasks has its number of tasks, and *dense* over these.
"""


def page(folder: Path) -> str:
    """Return the page of the reports in a folder."""
    paths = sorted(folder.glob("*/*.json"))
    reports = {f"[{path.parent.name}]({path.relative_to(folder).as_posix()})": read_report(path) for path in paths}
    tables = [(SPEED, speed_table(reports)), (QUALITY, quality_table(reports))]
    return HEAD + "".join(f"{text}\n{_table(table)}\n" for text, table in tables if table[1])


def _table(table: Table) -> str:
    headings, rows = table
    return markdown_table(headings, rows, n_left=2)


if __name__ == "__main__":
    (MEASURED / "README.md").write_text(page(MEASURED), "utf-8")
