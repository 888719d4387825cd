"""benchmarks/passage_search.py: what it measures, on a small dataset."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "passage_search.py"


def test_the_share_of_answers_in_the_passages_is_shown(tmp_path):
    asked = [
        {"question": "Who painted the lighthouse?", "answers": ["Tobias Quill"]},
        {"question": "Zyxwv?", "answers": ["green"]},
    ]
    context = "The lighthouse of Skerry was painted green by Tobias Quill."
    dataset = tmp_path / "xquad.json"
    dataset.write_text(json.dumps([{"title": "Skerry", "paragraphs": [{"context": context, "qas": asked}]}]))
    options = ["--depths", "3000,6000", "--documents", "2", "--samples", "4", "--characters", "500", "--data", dataset]
    shown = subprocess.run([sys.executable, SCRIPT, "qa", *options], capture_output=True, text=True, check=True).stdout
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown.strip().splitlines()[2:]]
    assert [row[:4] for row in rows] == [["3,000", "4", "0.500", "0.500"], ["6,000", "4", "0.500", "0.500"]]
