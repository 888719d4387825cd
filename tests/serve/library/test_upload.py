"""How far the reading of an upload is."""

from pathlib import Path

import pytest

from octavo.library.batch.job import ReadingJob
from octavo.runtime.methods.attention import Attention
from octavo.serve.library.upload import Upload
from octavo.settings import ModelSettings


@pytest.mark.parametrize(
    ("task", "shown"),
    [
        ("Reading a, part 1.txt", "Reading"),
        ("Reading a, part 1.txt, part 2 of 3", "Reading part 2 of 3"),
        ("Clustering keys", "Clustering"),
    ],
)
def test_progress_names_the_task_and_the_part_but_not_the_file(task, shown):
    upload = Upload(Path("file-1/a, part 1.txt"), ReadingJob(ModelSettings("model.gguf"), Attention.parse("auto")))
    upload.start(task, 100, "tokens", 10)
    upload.advance(5)
    progress = upload.progress.as_json()
    assert (progress["task"], progress["done"], progress["total"]) == (shown, 15, 100)
