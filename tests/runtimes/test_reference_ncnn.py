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
    assert "layer convolution1: needs bytes 0 to 4 of the .bin file, which has 2" in refused(net, tmp_path)


@pytest.mark.parametrize("flag", [0x000D4B38, 0x0002C056, 1])
def test_weights_of_another_kind_are_refused(flag: int, tmp_path: Path) -> None:
    net = compact()
    net.data = struct.pack("<I", flag) + net.data[4:]
    assert f"flag 0x{flag:08X} at byte 0 is neither fp16" in refused(net, tmp_path)


def test_a_layer_more_is_another_network(tmp_path: Path) -> None:
    net = compact()
    net.layer("InnerProduct", "in", "0=10 1=1 2=100")
    message = refused(net, tmp_path)
    assert "net.param: architecture compact: has 10 layers, that architecture 9: it is another network" in message


@pytest.mark.parametrize(
    ("net", "architecture", "words"),
    [
        (compact(), "esrgan", "3 convolutions are not 15 a block and 6 more"),
        (esrgan(), "compact", "21 convolutions and 0 PReLU are not convolution and PReLU by turns"),
    ],
)
def test_layers_of_another_architecture_are_refused(net: Net, architecture: str, words: str, tmp_path: Path) -> None:
    assert refused(net, tmp_path, architecture).startswith(f"architecture {architecture}: {words}")


@pytest.mark.parametrize(("net", "architecture"), [(compact(), "compact"), (esrgan(), "esrgan")])
def test_a_network_with_one_more_layer_is_another_network(net: Net, architecture: str, tmp_path: Path) -> None:
    # As ncnn ships animevideov3-x2: the network of x4, and a layer behind it that halves what it gives.
    net.layer("Interp", net.lines[-1].split()[1], "0=3 1=0.5 2=0.5")
    message = refused(net, tmp_path, architecture)
    assert f"layers, that architecture {len(net.lines) - 1 - splits(net)}: it is another network" in message


def splits(net: Net) -> int:
    return sum(line.startswith("Split") for line in net.lines)


ESRGAN = [
    ("Convolution", "4=1", "4=1 2=2", 0, "setting 2 of its Convolution is 2.0, not 1"),
    ("Convolution", "4=1", "4=1 12=2", 0, "setting 12 of its Convolution is 2.0, not 1"),
    ("Convolution", "4=1", "4=1 3=2", 0, "setting 3 of its Convolution is 2.0, not 1"),
    ("Convolution", "4=1", "4=1 13=2", 3, "setting 13 of its Convolution is 2.0, not 1"),
    ("Convolution", "4=1 ", "", 0, "setting 4 of its Convolution is 0, not 1"),
    ("Convolution", "4=1", "4=1 14=0", 0, "setting 14 of its Convolution is 0.0, not 1"),
    ("Convolution", "4=1", "4=1 16=2", 0, "setting 16 of its Convolution is 2.0, not 1"),
    ("Convolution", "4=1", "4=1 18=1.5", 0, "setting 18 of its Convolution is 1.5, not 0"),
    ("Convolution", "4=1", "4=1 8=1", 0, "setting 8 of its Convolution is 1.0, not 0"),
    ("Convolution", "4=1", "4=1 77=1", 0, "setting 77 of its Convolution is 1.0, not left out"),
    ("Convolution", "5=1", "5=0", 0, "setting 5 of its Convolution is 0.0, not 1"),
    ("Convolution", "2.0", "1.0", 1, "setting 10 of its Convolution is (0.1,), not (0.2,)"),
    ("Convolution", "9=2", "9=1", 1, "setting 9 of its Convolution is 1.0, not 2"),
    ("Convolution", "9=2 -23310=1,2.000000e-01", "", 1, "setting 9 of its Convolution is 0, not 2"),
    ("Convolution", "5=1", "5=1 9=1", 0, "setting 9 of its Convolution is 1.0, not 0"),
    ("Eltwise", "0=1", "0=2", 0, "setting 0 of its Eltwise is 2.0, not 1"),
    ("Eltwise", "2.0", "1.0", 2, "setting 1 of its Eltwise is (0.1, 1.0), not (0.2, 1.0)"),
    ("Eltwise", "-23301=2,2.000000e-01,1.000000e+00", "", 0, "setting 1 of its Eltwise is (), not (0.2, 1.0)"),
    ("BinaryOp", "0=0", "0=1", 0, "setting 0 of its BinaryOp is 1.0, not 0"),
    ("BinaryOp", "0=0", "0=0 1=1 2=0.5", 0, "setting 1 of its BinaryOp is 1.0, not 0"),
    ("Interp", "0=1", "0=2", 1, "setting 0 of its Interp is 2.0, not 1"),
    ("Interp", "1=2.0", "1=4.0", 0, "setting 1 of its Interp is 4.0, not 2"),
    ("Interp", "0=1", "0=1 3=64", 0, "setting 3 of its Interp is 64.0, not 0"),
    ("Concat", "split3_1 split4_1", "split4_1 split3_1", 0, "takes split4_1, split3_1, not what convolution1, conv"),
    ("Eltwise", " convolution1 ", " in ", 0, "in, not what convolution19, convolution1 gives"),
    ("BinaryOp", " convolution1 ", " in ", 0, "takes in, convolution61, not what convolution1, convolution61 gives"),
]
COMPACT = [
    ("PixelShuffle", "0=2", "0=3", 0, "setting 1 of its Interp is 2.0, not 3"),
    ("PixelShuffle", "0=2", "0=2 1=1", 0, "setting 1 of its PixelShuffle is 1.0, not 0"),
    ("Interp", "2=2", "2=3", 0, "setting 2 of its Interp is 3.0, not 2"),
    ("BinaryOp", " pixelshuffle6 ", " interp8 ", 0, "not what pixelshuffle6, interp8 gives"),
    ("Convolution", "5=1", "5=1 9=1", 1, "setting 9 of its Convolution is 1.0, not 0"),
    ("PReLU", "0=3", "0=3 1=1", 0, "setting 1 of its PReLU is 1.0, not left out"),
    ("PReLU", "PReLU", "Clip", 0, "1 PReLU are not convolution and PReLU by turns"),
    ("Input", "Input", "Reorg", 0, "layer in is a Reorg, not a Input"),
]


@pytest.mark.parametrize(
    ("architecture", "kind", "before", "after", "number", "words"),
    [*(("esrgan", *each) for each in ESRGAN), *(("compact", *each) for each in COMPACT)],
)
def test_a_network_with_another_setting_is_another_network(
    architecture: str, kind: str, before: str, after: str, number: int, words: str, tmp_path: Path
) -> None:
    net = esrgan() if architecture == "esrgan" else compact()
    net.change(kind, before, after, number)
    message = refused(net, tmp_path, architecture)
    assert words in message
    assert "it is another network" in message or "name the architecture" in message


def test_settings_that_say_the_same_in_other_words_are_the_same_network(tmp_path: Path) -> None:
    net = esrgan()
    net.change("Convolution", "4=1", "4=1 14=1 15=1 16=1 11=3 12=1 2=1 3=1 13=1 9=0 -23310=0")
    net.change("Convolution", "2.000000e-01", "0.2", 1)
    net.change("BinaryOp", "0=0", "")
    net.change("BinaryOp", "convolution1 convolution61", "convolution61 convolution1")
    net.change("Input", "in 0 1 in", "in 0 1 in 0=64 1=96 2=3")
    assert len(ncnn.read(*net.write(tmp_path), "esrgan")) == 42


def test_a_shape_that_the_weights_do_not_fill_is_refused(tmp_path: Path) -> None:
    net = compact()
    net.change("Convolution", "0=3", "0=4")
    assert "layer convolution1: 81 weights do not fill 4 kernels of 3×3" in refused(net, tmp_path)


@pytest.mark.parametrize(
    ("text", "words"), [("", "key 6 is None"), ("6=1.5", "key 6 is 1.5"), ("6=inf", "key 6 is inf")]
)
def test_a_missing_number_is_refused(text: str, words: str, tmp_path: Path) -> None:
    net = compact()
    net.change("Convolution", "6=81", text)
    assert f"layer convolution1: {words}, not a whole number" in refused(net, tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "starts with ''"),
        (b"7767517", "no ncnn text file"),
        (b"\x89PNG\xff\xfe", "this is no ncnn text file"),
        (b"7767517\n2 2\nInput x 0 1 data\n", "its second line is '2 2', but 1 layers follow"),
        (b"7767517\n1 1\nInput x\n", "'Input x' is no layer"),
        (b"7767517\n1 1\nInput x 0 1 data 0\n", "is no layer"),
        (b"7767517\n1 1\nInput x 0 2 data\n", "names 1 blobs"),
        (b"7767517\n1 1\nEltwise x 0 1 data -23301=2,1.0\n", "an array of 2 numbers holds 1"),
    ],
)
def test_a_file_that_is_no_param_file_is_refused(text: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "net.param"
    path.write_bytes(text)
    with pytest.raises(ncnn.BadWeights, match="net.param: ") as caught:
        ncnn.parse(path)
    assert words in str(caught.value)
