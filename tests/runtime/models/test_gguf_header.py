"""Headers of GGUF files: what octavo must know before llama.cpp loads a model."""

import gguf
import numpy as np

from octavo.runtime.models.gguf_header import multiplied_weights, weight_types

Q4_0, Q8_0 = gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q8_0


def written(path, *types, **tensors):
    """Write a file with a matrix of 4 x 64 of each type, and with tensors of given types and shapes."""
    writer = gguf.GGUFWriter(path, "llama")
    for name, (kind, shape) in {**{kind.name: (kind, (4, 64)) for kind in types}, **tensors}.items():
        rows = gguf.quantize(np.ones(shape, np.float32), kind)
        writer.add_tensor(f"{name}.weight", rows, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_weights_are_counted_in_all_files_of_a_split_model(tmp_path):
    first, second = written(tmp_path / "1.gguf"), written(tmp_path / "2.gguf", Q4_0, Q8_0)
    assert weight_types([first]) == set()
    assert weight_types([first, second]) == {Q4_0, Q8_0}
    assert multiplied_weights([first]) == {}
    assert multiplied_weights([first, second]) == {Q4_0: 256, Q8_0: 256}


def test_embeddings_are_counted_where_they_are_the_outputs_weights(tmp_path):
    """Vectors, such as those of norms, are not; experts are, all of them."""
    layer = {"up_exps": (Q4_0, (3, 4, 64)), "norm": (gguf.GGMLQuantizationType.F32, (64,))}
    tied = written(tmp_path / "1.gguf", **layer, token_embd=(Q8_0, (8, 64)), position_embd=(Q8_0, (5, 64)))
    assert multiplied_weights([tied]) == {Q4_0: 768, Q8_0: 512}
    apart = written(tmp_path / "2.gguf", output=(Q4_0, (8, 64)))
    assert multiplied_weights([tied, apart]) == {Q4_0: 1280}


def test_a_file_that_is_damaged_or_gone_is_left_to_llama_cpp(tmp_path):
    good, damaged = written(tmp_path / "1.gguf", Q4_0), tmp_path / "2.gguf"
    for content in (b"", b"GGUF", good.read_bytes()[:-70]):
        damaged.write_bytes(content)
        assert multiplied_weights([good, damaged, tmp_path / "3.gguf"]) == {Q4_0: 256}
