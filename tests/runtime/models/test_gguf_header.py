"""Headers of GGUF files: what octavo must know before llama.cpp loads a model."""

import gguf
import numpy as np

from octavo.runtime.models.gguf_header import weight_types

Q4_0, Q8_0 = gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q8_0


def written(path, *types):
    """Write a file with a tensor of each type."""
    writer = gguf.GGUFWriter(path, "llama")
    for kind in types:
        rows = gguf.quantize(np.ones((4, 64), np.float32), kind)
        writer.add_tensor(f"{kind.name}.weight", rows, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_types_of_weights_are_those_of_all_files_of_a_split_model(tmp_path):
    first, second = written(tmp_path / "1.gguf"), written(tmp_path / "2.gguf", Q4_0, Q8_0)
    assert weight_types([first]) == set()
    assert weight_types([first, second]) == {Q4_0, Q8_0}


def test_a_file_that_is_damaged_or_gone_is_left_to_llama_cpp(tmp_path):
    good, damaged = written(tmp_path / "1.gguf", Q4_0), tmp_path / "2.gguf"
    for content in (b"", b"GGUF", good.read_bytes()[:-70]):
        damaged.write_bytes(content)
        assert weight_types([good, damaged, tmp_path / "3.gguf"]) == {Q4_0}
