"""benchmarks/passage_search.py: what it measures, on a small novel and dataset."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "passage_search.py"


def test_the_share_of_answers_in_the_passages_is_shown(tmp_path):
    novel, dataset = tmp_path / "novel.txt", tmp_path / "xquad.json"
    novel.write_text("She walked to the village and back, and said nothing of it.\n\n" * 2_000)
    asked = [
        {"question": "Who painted the lighthouse?", "answers": ["Tobias Quill"]},
        {"question": "Zyxwv?", "answers": ["green"]},
    ]
    context = "The lighthouse of Skerry was painted green by Tobias Quill."
    dataset.write_text(json.dumps([{"title": "Skerry", "paragraphs": [{"context": context, "qas": asked}] * 2}]))
    command = [sys.executable, str(SCRIPT), str(novel), str(dataset), "--characters", "500"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    row = [cell.strip() for cell in shown.strip().splitlines()[-1].strip("|").split("|")]
    assert row[2:4] == ["4", "0.500"]
