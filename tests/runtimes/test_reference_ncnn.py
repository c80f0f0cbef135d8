"""ncnn's files: what is written comes back, and what does not fit is said."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from runtimes.reference import ncnn
from tests.runtimes.ncnn_files import FP16, Net, compact, esrgan


@pytest.mark.parametrize("flag", [FP16, 0])
def test_every_number_of_a_compact_net_comes_back(flag: int, tmp_path: Path) -> None:
    net = compact(flag=flag)
    state = ncnn.read(*net.write(tmp_path), "compact")
    expected = {f"body.{index}.{key}": array for index, held in enumerate(net.arrays) for key, array in held.items()}
    assert list(state) == list(expected)
    for name, array in expected.items():
        assert state[name].dtype == np.float32
        np.testing.assert_array_equal(state[name], array)


def test_every_number_of_an_esrgan_net_comes_back_under_its_name(tmp_path: Path) -> None:
    net = esrgan()
    state = ncnn.read(*net.write(tmp_path), "esrgan")
    names = list(dict.fromkeys(name.rsplit(".", 1)[0] for name in state))
    assert names[:2] == ["conv_first", "body.0.rdb1.conv1"]
    assert names[15:] == ["body.0.rdb3.conv5", "conv_body", "conv_up1", "conv_up2", "conv_hr", "conv_last"]
    np.testing.assert_array_equal(state["body.0.rdb3.conv5.weight"], net.arrays[15]["weight"])
    np.testing.assert_array_equal(state["conv_last.bias"], net.arrays[-1]["bias"])


def refused(net: Net, folder: Path, architecture: str = "compact", *, extra: bytes = b"") -> str:
    param, weights = net.write(folder, extra=extra)
    with pytest.raises(ncnn.BadWeights) as caught:
        ncnn.read(param, weights, architecture)
    return str(caught.value)


def test_bytes_left_over_are_refused(tmp_path: Path) -> None:
    size = len(compact().data) + 4
    assert f"net.bin: 4 of {size} bytes are left over" in refused(compact(), tmp_path, extra=b"\0" * 4)


def test_weights_cut_short_are_refused(tmp_path: Path) -> None:
    net = compact()
    net.data = net.data[:-4]
    assert f"which has {len(net.data)}; it is cut short" in refused(net, tmp_path)


def test_weights_cut_inside_a_flag_are_refused(tmp_path: Path) -> None:
    net = compact()
    net.data = net.data[:2]
    assert "layer c1: needs bytes 0 to 4 of the .bin file, which has 2" in refused(net, tmp_path)


@pytest.mark.parametrize("flag", [0x000D4B38, 0x0002C056, 1])
def test_weights_of_another_kind_are_refused(flag: int, tmp_path: Path) -> None:
    net = compact()
    net.data = struct.pack("<I", flag) + net.data[4:]
    assert f"flag 0x{flag:08X} at byte 0 is neither fp16" in refused(net, tmp_path)


def test_a_layer_with_weights_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    net = compact()
    net.lines.append("InnerProduct fc 1 1 a b 0=10 1=1 2=100")
    assert "layer fc is a InnerProduct, whose weights this reader does not know" in refused(net, tmp_path)


@pytest.mark.parametrize(("net", "architecture"), [(compact(), "esrgan"), (esrgan(), "compact")])
def test_layers_of_another_architecture_are_refused(net: Net, architecture: str, tmp_path: Path) -> None:
    assert refused(net, tmp_path, architecture).startswith(f"architecture {architecture}: {len(net.arrays)} layers")


@pytest.mark.parametrize(("net", "architecture"), [(compact(), "compact"), (esrgan(), "esrgan")])
def test_a_network_with_one_more_layer_is_another_network(net: Net, architecture: str, tmp_path: Path) -> None:
    # As ncnn ships animevideov3-x2: the network of x4, and a layer behind it that halves what it gives.
    net.layers("Interp", 1, "0=1 1=0.5 2=0.5")
    message = refused(net, tmp_path, architecture)
    assert f"layers Interp, architecture {architecture} has" in message
    assert "it is another network" in message


def test_a_network_that_resizes_in_another_way_is_another_network(tmp_path: Path) -> None:
    net = compact()
    net.lines = [line.replace("0=1 1=2.0", "0=2 1=2.0") for line in net.lines]
    assert "resizes by method 2, architecture compact by 1 (nearest)" in refused(net, tmp_path)


def test_a_shape_that_the_weights_do_not_fill_is_refused(tmp_path: Path) -> None:
    net = compact()
    net.lines[1] = net.lines[1].replace("0=3", "0=4")
    assert "layer c1: 81 weights do not fill 4 kernels of 3×3" in refused(net, tmp_path)


def test_a_missing_number_is_refused(tmp_path: Path) -> None:
    net = compact()
    net.lines[1] = net.lines[1].replace(" 6=81", "")
    assert "layer c1: key 6 is None" in refused(net, tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "starts with ''"),
        (b"7767517", "no ncnn text file"),
        (b"\x89PNG\xff\xfe", "this is no ncnn text file"),
        (b"7767517\n2 2\nInput x 0 1 data\n", "its second line is '2 2', but 1 layers follow"),
        (b"7767517\n1 1\nInput x\n", "'Input x' is no layer"),
        (b"7767517\n1 1\nInput x 0 1 data 0\n", "is no layer"),
    ],
)
def test_a_file_that_is_no_param_file_is_refused(text: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "net.param"
    path.write_bytes(text)
    with pytest.raises(ncnn.BadWeights, match="net.param: ") as caught:
        ncnn.parse(path)
    assert words in str(caught.value)
