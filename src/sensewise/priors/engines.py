"""What computes a network: PyTorch itself, onnxruntime, in about half of the time for a single image, or PyTorch,
compiled and with products of bfloat16, in a quarter of the time for batches where the processor can multiply those.

An engine stands for a frozen network and takes the same arguments. It is chosen by name and never behind one's back: a
prior says in its `repr` which one it runs with.
"""

import logging
import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sensewise.errors import ConfigError
from sensewise.files import atomic

EngineName = Literal["torch", "onnx", "bfloat16", "fastest"]
Network = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Tokens `(B, C, H, W)`, labels `(B,)` and survival `(B,)` to whatever the network says."""
OPSET = 18
EXTRA = "install the extra `onnx`"


def to_onnx(
    module: nn.Module,
    inputs: Mapping[str, Tensor],
    outputs: list[str],
    path: Path,
    metadata: Mapping[str, str] | None = None,
) -> Path:
    """Write a module as ONNX with a free batch size.

    Args:
        inputs: an example of each, batch first, by name.
        outputs: names.
        metadata: goes into the file.
    """
    if find_spec("onnxscript") is None:
        raise ConfigError(f"export needs packages that are not installed: {EXTRA}")
    batch = torch.export.Dim("batch")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad(), atomic(path) as temporary:
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module.eval(),
            tuple(inputs.values()),
            input_names=list(inputs),
            output_names=outputs,
            dynamic_shapes=tuple({0: batch} for _ in inputs),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
        assert program is not None
        program.model.metadata_props.update(metadata or {})
        program.save(temporary, external_data=False)
    return path


class OnnxNetwork:
    """A network as it is now, computed by onnxruntime on the CPU; without gradients.

    Args:
        network: takes tokens, labels and survival.
        shape: `(C, H, W)` of the tokens.
    """

    def __init__(self, network: nn.Module, shape: tuple[int, int, int]) -> None:
        if not installed():
            raise ConfigError(f"the engine onnx needs packages that are not installed: {EXTRA}, or take engine torch")
        import onnxruntime  # type: ignore[import-untyped]

        inputs = {
            "tokens": torch.zeros(2, *shape, dtype=torch.int64),
            "label": torch.zeros(2, dtype=torch.int64),
            "survival": torch.zeros(2),
        }
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        with TemporaryDirectory() as folder:
            path = to_onnx(network, inputs, ["found"], Path(folder) / "network.onnx")
            self.session: Any = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def __call__(self, y: Tensor, label: Tensor, survival: Tensor) -> Tensor:
        if y.device.type != "cpu" or y.is_floating_point() or (torch.is_grad_enabled() and survival.requires_grad):
            raise ConfigError(
                "the engine onnx takes tokens on the CPU and gives no gradients: load the prior with engine torch"
            )
        given = {"tokens": y.numpy(), "label": label.numpy(), "survival": survival.numpy()}
        return torch.from_numpy(self.session.run(None, given)[0])


class RoundedNetwork:
    """A network whose convolutions multiply numbers of 8 binary digits and add them up with more, compiled.

    Its answers differ by some thousandths, and in their last digits with the other images of a batch: for tables and
    sweeps, not where the same reading has to give the same choice. The first answer takes a minute: until then the
    network is compiled.
    """

    def __init__(self, network: nn.Module) -> None:
        if compiler() is None:
            raise ConfigError(
                "the engine bfloat16 compiles the network and finds no C++ compiler: install g++, name one in CXX, or "
                "take engine torch"
            )
        self.network = torch.compile(network)

    def __call__(self, y: Tensor, label: Tensor, survival: Tensor) -> Tensor:
        with torch.autocast(y.device.type, torch.bfloat16):
            return self.network(y, label, survival).float()


def compiler() -> str | None:
    """The C++ compiler that PyTorch would call, or None."""
    names = [os.environ["CXX"]] if "CXX" in os.environ else ["g++", "clang++", "cl"]
    return next((path for name in names if (path := shutil.which(name))), None)


def installed() -> bool:
    """Whether the engine onnx can be used here."""
    return all(find_spec(name) is not None for name in ("onnxruntime", "onnxscript"))


def available() -> tuple[EngineName, ...]:
    """The engines that can be used here."""
    rounded: tuple[EngineName, ...] = () if compiler() is None else ("bfloat16",)
    return ("torch", *rounded, "onnx") if installed() else ("torch", *rounded)


def fastest() -> EngineName:
    """The quickest engine that is installed."""
    return "onnx" if installed() else "torch"
