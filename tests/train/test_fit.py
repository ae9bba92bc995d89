"""The loop of every run, shown on a small prior: complete, stopped, killed, resumed, refused."""

import json
import signal
from dataclasses import replace

import pytest
import torch

from conftest import seeded
from sensewise import hub
from sensewise.errors import CheckpointError, ConfigError, OutputError
from sensewise.files import read_tensors
from sensewise.train import fit
from sensewise.train.curriculum import Curriculum
from sensewise.train.fit import Run, step_generator
from sensewise.train.gradient import FitSettings, learning_rate, update_average
from sensewise.train.prior import NetworkSettings, PriorObjective, PriorRecipe, PriorSettings
from sensewise.train.processes import Execution

STEPS = 12


def settings(**changes):
    options = {"steps": STEPS, "warmup": 2, "validate_every": 4, "average": 0.5, **changes}
    network = NetworkSettings(widths=(8, 16), blocks=(1, 1), embedding=8)
    curriculum = Curriculum(on_policy=0.5, min_steps=2, max_steps=4, max_budget=0.5)
    return PriorSettings(batch_size=4, network=network, curriculum=curriculum, fit=FitSettings(**options))


@pytest.fixture
def train(tiny_digits, tmp_path, console, monkeypatch):
    monkeypatch.setattr(PriorObjective, "validate", lambda self, model: {"held_out": 1.0})

    def call(name, chosen=None, init=None, **options):
        recipe = PriorRecipe(chosen or settings(), tiny_digits, tiny_digits, init=init)
        return recipe.train(tmp_path / name, Execution(console=console, **options))

    return call


def weights(folder):
    return read_tensors(folder / "weights.safetensors")[0]


def same_weights(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def log(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def logged_steps(folder):
    return [line["step"] for line in log(folder)]


def logged_losses(folder):
    return [line["loss"] for line in log(folder)]


def trained(folder):
    return json.loads((folder / "config.json").read_text())["trained"]


def saved_step(folder):
    return int(read_tensors(folder / "checkpoint.safetensors")[1]["step"])


def test_a_run_leaves_a_prior_that_loads(train, tmp_path):
    seen = []
    assert train("run", on_log=seen.append)
    assert hub.load_prior(tmp_path / "run").shape == (1, 8, 8)
    assert logged_steps(tmp_path / "run") == [4, 8, 12]
    assert seen == [tmp_path / "run"] * 3
    found = trained(tmp_path / "run")
    assert (found["steps"], found["complete"], found["validation"]) == (STEPS, True, {"held_out": 1.0})


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
    assert logged_losses(tmp_path / "parts") == logged_losses(tmp_path / "whole")


def test_a_look_that_a_stop_left_out_is_made_up_for(train, tmp_path, monkeypatch):
    looks = []
    monkeypatch.setattr(PriorObjective, "validate", lambda self, model: looks.append(1) or {"held_out": 1.0})
    train("run", max_minutes=0)
    for _ in range(3):
        train("run", resume=True, max_minutes=0)
    assert saved_step(tmp_path / "run") == 4
    assert looks == []  # the time was up: no look at the held-out images
    train("run", resume=True, max_minutes=0)
    assert looks == [1]
    assert logged_steps(tmp_path / "run") == [4]


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
    assert saved_step(tmp_path / "killed") == 3
    with (tmp_path / "killed" / "log.jsonl").open("a") as file:
        file.write('{"step": 9, "seco')
    assert train("killed", settings(save_minutes=0.0), resume=True)
    assert same_weights(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
    assert logged_steps(tmp_path / "killed") == [4, 8, 12]


def test_a_run_killed_before_its_first_checkpoint_starts_again(train, tmp_path):
    train("whole")
    train("early", max_minutes=0)
    (tmp_path / "early" / "checkpoint.safetensors").unlink()
    train("early", resume=True)
    assert same_weights(weights(tmp_path / "whole"), weights(tmp_path / "early"))


def test_a_second_stage_killed_before_its_first_checkpoint_starts_from_the_first_stage_again(train, tmp_path):
    train("first")
    train("whole", init=tmp_path / "first")
    train("early", init=tmp_path / "first", max_minutes=0)
    (tmp_path / "early" / "checkpoint.safetensors").unlink()
    train("early", init=tmp_path / "first", resume=True)
    assert same_weights(weights(tmp_path / "whole"), weights(tmp_path / "early"))


def test_the_seed_decides_and_the_global_randomness_is_left_alone(train, tmp_path):
    before = torch.random.get_rng_state()
    train("a"), train("b"), train("c", settings(seed=1))
    assert torch.equal(torch.random.get_rng_state(), before)
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
    before = files(tmp_path / "run")
    assert train("run", resume=True)
    assert files(tmp_path / "run") == before


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


def test_a_second_stage_refuses_a_model_of_another_size(train, tmp_path):
    with pytest.raises(CheckpointError, match="another size"):
        train("second", init="mnist")
    assert not (tmp_path / "second").exists()


def test_what_a_stopped_run_leaves_can_be_used(train, tmp_path, monkeypatch):
    clock = iter(range(0, 100_000, 30))
    monkeypatch.setattr(fit.time, "monotonic", lambda: next(clock))
    assert not train("run", settings(save_minutes=1e6), max_minutes=1)
    assert 1 <= saved_step(tmp_path / "run") < STEPS
    found = trained(tmp_path / "run")
    assert (found["steps"], found["complete"]) == (saved_step(tmp_path / "run"), False)
    assert hub.load_prior(tmp_path / "run").shape == (1, 8, 8)
    assert train("run", settings(save_minutes=1e6), resume=True)
    assert trained(tmp_path / "run")["complete"]
    assert hub.load_prior(tmp_path / "run").shape == (1, 8, 8)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_stop_finishes_the_step_and_saves(train, tmp_path, monkeypatch, number):
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
    assert saved_step(tmp_path / "stopped") == 7
    assert train("stopped", resume=True)
    assert same_weights(weights(tmp_path / "whole"), weights(tmp_path / "stopped"))


def test_a_second_request_stops_at_once(train, tmp_path, monkeypatch):
    def loss(self, model, step, generator):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(PriorObjective, "loss", loss)
    with pytest.raises(KeyboardInterrupt):
        train("run")


def test_learning_rate_rises_then_falls():
    chosen = FitSettings(steps=100, warmup=10, learning_rate=1.0)
    rates = [learning_rate(chosen, step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1, rel=0.01)
    assert rates.index(max(rates)) == 9
    assert rates[-1] == pytest.approx(0.01, abs=0.005)


def test_the_average_follows_the_weights():
    model, average = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).requires_grad_(False)
    start = average.weight.clone()
    update_average(average, model, 0.75, step=1000)
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


def test_the_licence_of_the_data_is_on_the_card(tiny_digits, tmp_path, console, monkeypatch):
    monkeypatch.setattr(PriorObjective, "validate", lambda self, model: {})
    named = replace(tiny_digits, licence="CC0")
    PriorRecipe(settings(steps=1), named, named).train(tmp_path / "run", Execution(console=console))
    assert hub.card(tmp_path / "run").licence == "CC0"
