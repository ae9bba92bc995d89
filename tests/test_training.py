import json
import signal

import pytest
import torch

from conftest import seeded
from sensewise import training
from sensewise.checkpoint import load_prior, read_tensors
from sensewise.curriculum import Curriculum, PriorObjective
from sensewise.errors import CheckpointError, ConfigError, OutputError
from sensewise.train_prior import NetworkSettings, PriorSettings, train_prior
from sensewise.training import FitSettings, Run, learning_rate, step_generator

STEPS = 12


def settings(**fit):
    options = {"steps": STEPS, "warmup": 2, "validate_every": 4, "average": 0.5, **fit}
    network = NetworkSettings(widths=(8, 16), blocks=(1, 1), embedding=8)
    curriculum = Curriculum(on_policy=0.5, min_steps=2, max_steps=4, max_budget=0.5)
    return PriorSettings(batch_size=4, network=network, curriculum=curriculum, fit=FitSettings(**options))


@pytest.fixture
def train(tiny_digits, tmp_path, console, monkeypatch):
    monkeypatch.setattr(PriorObjective, "validate", lambda self, model: {"held_out": 1.0})
    monkeypatch.setattr(training, "training_curves", lambda log: b"drawing takes longer than training here")

    def call(name, chosen=None, **options):
        chosen = chosen or settings()
        return train_prior(chosen, tiny_digits, tiny_digits, tmp_path / name, console=console, **options)

    return call


def weights(folder):
    return read_tensors(folder / "weights.safetensors")[0]


def same_weights(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def logged_steps(folder):
    return [json.loads(line)["step"] for line in (folder / "log.jsonl").read_text().splitlines()]


def test_a_run_leaves_a_prior_that_loads(train, tmp_path):
    assert train("run")
    assert load_prior(tmp_path / "run").shape == (1, 8, 8)
    assert logged_steps(tmp_path / "run") == [4, 8, 12]
    assert (tmp_path / "run" / "loss.png").is_file()
    assert json.loads((tmp_path / "run" / "config.json").read_text())["trained"]["steps"] == STEPS


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_stopped_after_every_step_ends_in_the_same_weights(train, tmp_path, optimizer):
    chosen = settings(optimizer=optimizer)
    train("whole", chosen)
    stops, complete = 0, train("parts", chosen, max_minutes=0)
    while not complete:
        stops += 1
        complete = train("parts", chosen, resume=True, max_minutes=0)
    assert stops == STEPS - 1
    assert same_weights(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    assert logged_steps(tmp_path / "parts") == [4, 8, 12]


@pytest.mark.parametrize("killed_at", [5, 8, 9])
def test_a_killed_run_resumes_from_its_checkpoint(train, tmp_path, monkeypatch, killed_at):
    train("whole")
    save, loss = Run.save, PriorObjective.loss

    def loss_until_killed(self, model, step, generator):
        if step == killed_at:
            raise KeyboardInterrupt
        return loss(self, model, step, generator)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save", lambda self: save(self) if self.step <= 3 else None)
        patch.setattr(PriorObjective, "loss", loss_until_killed)
        with pytest.raises(KeyboardInterrupt):
            train("killed", settings(save_minutes=0.0))
    assert read_tensors(tmp_path / "killed" / "checkpoint.safetensors")[1]["step"] == "3"
    with (tmp_path / "killed" / "log.jsonl").open("a") as log:
        log.write('{"step": 9, "seco')
    assert train("killed", settings(save_minutes=0.0), resume=True)
    assert same_weights(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
    assert logged_steps(tmp_path / "killed") == [4, 8, 12]


def test_a_run_killed_before_its_first_checkpoint_starts_again(train, tmp_path):
    train("whole")
    train("early", max_minutes=0)
    (tmp_path / "early" / "checkpoint.safetensors").unlink()
    train("early", resume=True)
    assert same_weights(weights(tmp_path / "whole"), weights(tmp_path / "early"))


def test_the_seed_decides(train, tmp_path):
    train("a"), train("b"), train("c", settings(seed=1))
    assert same_weights(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert not same_weights(weights(tmp_path / "a"), weights(tmp_path / "c"))


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_run_is_never_overwritten(train, tmp_path):
    train("run")
    before = files(tmp_path / "run")
    with pytest.raises(ConfigError, match="--resume"):
        train("run")
    assert files(tmp_path / "run") == before


def test_a_complete_run_resumes_to_itself(train, tmp_path):
    train("run")
    before = weights(tmp_path / "run")
    assert train("run", resume=True)
    assert same_weights(weights(tmp_path / "run"), before)


def test_resume_refuses_other_settings(train, tmp_path):
    train("run", max_minutes=0)
    before = files(tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"other settings \(training\)"):
        train("run", settings(learning_rate=0.5), resume=True)
    assert files(tmp_path / "run") == before


def test_resume_needs_a_run(train):
    with pytest.raises(CheckpointError, match="does not exist"):
        train("nothing", resume=True)


def test_resume_refuses_a_damaged_checkpoint(train, tmp_path):
    train("run", max_minutes=0)
    path = tmp_path / "run" / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match="not a complete safetensors file"):
        train("run", resume=True)


def test_a_folder_that_cannot_be_written(train, tmp_path):
    (tmp_path / "file").write_text("here")
    with pytest.raises(OutputError, match="cannot write"):
        train("file/run")
    assert (tmp_path / "file").read_text() == "here"


def test_a_second_stage_starts_from_the_weights_of_the_first(train, tmp_path):
    train("first")
    train("second", settings(learning_rate=1e-12, average=0.0, weight_decay=0.0), init=tmp_path / "first")
    first, second = weights(tmp_path / "first"), weights(tmp_path / "second")
    assert all(torch.allclose(first[name], second[name], atol=1e-6) for name in first)


def test_a_second_stage_refuses_a_model_of_another_size(train):
    with pytest.raises(CheckpointError, match="another size"):
        train("second", init="mnist")


def test_time_is_up(train, tmp_path, monkeypatch):
    clock = iter(range(0, 100_000, 30))
    monkeypatch.setattr(training.time, "monotonic", lambda: next(clock))
    assert not train("run", settings(save_minutes=1e6), max_minutes=1)
    assert 1 <= int(read_tensors(tmp_path / "run" / "checkpoint.safetensors")[1]["step"]) < STEPS
    assert not (tmp_path / "run" / "weights.safetensors").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_polite_kill_finishes_the_step_and_saves(train, tmp_path, monkeypatch, number):
    train("whole")
    loss, handler = PriorObjective.loss, signal.getsignal(number)

    def loss_with_signal(self, model, step, generator):
        if step == 6:
            signal.raise_signal(number)
        return loss(self, model, step, generator)

    with monkeypatch.context() as patch:
        patch.setattr(PriorObjective, "loss", loss_with_signal)
        assert not train("stopped")
    assert signal.getsignal(number) is handler
    assert read_tensors(tmp_path / "stopped" / "checkpoint.safetensors")[1]["step"] == "7"
    assert train("stopped", resume=True)
    assert same_weights(weights(tmp_path / "whole"), weights(tmp_path / "stopped"))


def test_learning_rate_rises_then_falls():
    chosen = FitSettings(steps=100, warmup=10, learning_rate=1.0)
    rates = [learning_rate(chosen, step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1, rel=0.01)
    assert rates.index(max(rates)) == 9
    assert rates[-1] == pytest.approx(0.01, abs=0.005)


def test_the_average_follows_the_weights():
    model, average = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).requires_grad_(False)
    start = average.weight.clone()
    training._update_average(average, model, 0.75, step=1000)
    torch.testing.assert_close(average.weight, 0.75 * start + 0.25 * model.weight.detach())


def test_every_step_has_its_own_randomness():
    draws = {torch.rand(1, generator=step_generator(seed, step)).item() for seed in (0, 1) for step in range(50)}
    assert len(draws) == 100
    assert torch.equal(step_generator(0, 3).get_state(), seeded(3).get_state())


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"learning_rate": -1.0}, {"clip": 0.0}, {"average": 1.0}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        FitSettings(**wrong)


def test_a_compiled_run_takes_the_same_steps(train, tmp_path, monkeypatch):
    compiled, compile_module = [], torch.nn.Module.compile

    def traced(module):  # the whole way but the C++ compiler, which takes minutes
        compiled.append(type(module).__name__)
        compile_module(module, backend="eager")

    monkeypatch.setattr(torch.nn.Module, "compile", traced)
    train("plain")
    train("compiled", compile=True)
    assert compiled == ["UNet"]
    plain, found = weights(tmp_path / "plain"), weights(tmp_path / "compiled")
    assert plain.keys() == found.keys()
    for name, tensor in plain.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-5)
