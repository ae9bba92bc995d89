"""The loop of every run, shown on a small prior: complete, stopped, killed, resumed, refused."""

import json
import re
import signal
from dataclasses import replace

import pytest
import torch

from conftest import random_tokens, seeded
from sensewise import hub
from sensewise.errors import CheckpointError, ConfigError, OutputError
from sensewise.files import read_tensors, write_tensors
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
    assert stops == STEPS  # the last look is left to a sitting of its own: the time was up
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


def moments(tensors):
    return [name for name in tensors if name.startswith("optimizer.") and not name.endswith(".step")]


def reshaped(tensors):
    return {**tensors, moments(tensors)[0]: torch.zeros(1)}


def with_nan(tensors):
    return {name: torch.full_like(t, torch.nan) if name == moments(tensors)[0] else t for name, t in tensors.items()}


def nan_weights(tensors):
    return {name: torch.full_like(t, torch.nan) if name.startswith("model.") else t for name, t in tensors.items()}


def without(name):
    return lambda tensors: {known: tensor for known, tensor in tensors.items() if not known.startswith(name)}


def plain(value):
    return value


@pytest.mark.parametrize(
    ("change", "about", "words"),
    [
        (plain, {}, "damaged or of another run"),
        (plain, {"step": "abc", "seconds": "1"}, "damaged or of another run"),
        (plain, {"step": "-5", "seconds": "1"}, "it is of step -5"),
        (plain, {"step": "1000000000", "seconds": "1"}, "it is of step 1000000000"),
        (plain, {"step": "1", "seconds": "nan"}, "damaged or of another run"),
        (plain, {"step": "1", "seconds": "1", "crc32": "1"}, "its checksum is another"),
        (reshaped, {"step": "1", "seconds": "1"}, "of weight 0 is wrong"),
        (with_nan, {"step": "1", "seconds": "1"}, "of weight 0 is wrong"),
        (nan_weights, {"step": "1", "seconds": "1"}, "not finite"),
        (without("objective."), {"step": "1", "seconds": "1"}, "damaged or of another run"),
        (without("model."), {"step": "1", "seconds": "1"}, "is missing"),
    ],
)
def test_resume_refuses_a_checkpoint_that_was_tampered_with(train, tmp_path, change, about, words):
    train("run", max_minutes=0)
    path = tmp_path / "run" / "checkpoint.safetensors"
    write_tensors(path, change(read_tensors(path)[0]), about)
    before = files(tmp_path / "run")
    with pytest.raises(CheckpointError, match=words):
        train("run", resume=True)
    assert files(tmp_path / "run") == before


def test_a_flipped_bit_in_a_checkpoint_is_noticed(train, tmp_path):
    train("run", max_minutes=0)
    path = tmp_path / "run" / "checkpoint.safetensors"
    content = bytearray(path.read_bytes())
    for place in range(-len(content) // 2, 0, len(content) // 20):
        content[place] ^= 1
        path.write_bytes(content)
        with pytest.raises(CheckpointError):
            train("run", resume=True)
        content[place] ^= 1
    path.write_bytes(content)
    assert train("run", resume=True)


def test_a_checkpoint_of_an_earlier_version_has_no_checksum(train, tmp_path):
    train("whole")
    train("run", max_minutes=0)
    path = tmp_path / "run" / "checkpoint.safetensors"
    tensors, about = read_tensors(path)
    write_tensors(path, tensors, {"step": about["step"], "seconds": about["seconds"]})
    assert train("run", resume=True)
    assert same_weights(weights(tmp_path / "whole"), weights(tmp_path / "run"))


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


def grown(**sizes):
    return replace(settings(steps=1, learning_rate=1e-12, average=0.0), network=replace(settings().network, **sizes))


@pytest.mark.parametrize("sizes", [{"blocks": (2, 1)}, {"blocks": (1, 3)}, {"fine": 4}, {"blocks": (2, 2), "fine": 8}])
def test_a_second_stage_may_be_larger_and_says_the_same_at_first(train, tmp_path, sizes):
    train("first")
    train("second", grown(**sizes), init=tmp_path / "first")
    first, second = hub.load_prior(tmp_path / "first"), hub.load_prior(tmp_path / "second")
    assert sum(p.numel() for p in second.parameters()) > sum(p.numel() for p in first.parameters())
    y = random_tokens((3, 1, 8, 8)) * (torch.rand(3, 1, 8, 8, generator=seeded(1)) < 0.5)
    torch.testing.assert_close(second(y).log_probs, first(y).log_probs, rtol=0, atol=1e-5)
    train("third", grown(**{**sizes, "fine_blocks": 3}), init=tmp_path / "second")


@pytest.mark.parametrize("sizes", [{"blocks": (1, 1)}, {"blocks": (2, 2), "fine": 4}, {"blocks": (2, 2)}])
def test_a_second_stage_cannot_be_smaller_or_of_another_width(train, tmp_path, sizes):
    train("first", grown(blocks=(2, 2), fine=8))
    with pytest.raises(CheckpointError, match="another size"):
        train("second", grown(**sizes), init=tmp_path / "first")


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


class Held:
    """A validation of ten passes of the network, which may be interfered with before any of them."""

    def __init__(self):
        self.passes, self.before = 0, {}

    def validate(self, objective, model):
        x, _ = objective.draw(objective.held_out, slice(0, 2))
        for _ in range(10):
            self.before.pop(self.passes, lambda: None)()
            self.passes += 1
            nats = model(x).entropy().mean().item()
        return {"held_out": nats}


@pytest.fixture
def held(train, monkeypatch):
    found = Held()
    monkeypatch.setattr(PriorObjective, "validate", lambda self, model: found.validate(self, model))
    return found


@pytest.mark.parametrize("at", [0, 3, 20, 29])  # of the first look, and of the last
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_stop_ends_a_look_between_two_batches(train, held, tmp_path, number, at):
    train("whole")
    held.passes, held.before = 0, {at: lambda: signal.raise_signal(number)}
    assert not train("stopped")
    assert held.passes == at + 1  # the pass that was asked for next was not made
    step = 4 * (1 + at // 10)
    assert saved_step(tmp_path / "stopped") == step
    assert not trained(tmp_path / "stopped")["complete"]
    assert (tmp_path / "stopped" / "log.jsonl").exists() == (at >= 10)
    assert train("stopped", resume=True)
    assert same_weights(weights(tmp_path / "whole"), weights(tmp_path / "stopped"))
    told, whole = log(tmp_path / "stopped"), log(tmp_path / "whole")
    assert [{**line, "seconds": 0} for line in told] == [{**line, "seconds": 0} for line in whole]


def test_a_look_ends_when_the_time_is_up(train, held, tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(fit.time, "monotonic", lambda: now[0])
    held.before = {5: lambda: now.__setitem__(0, 61.0)}
    assert not train("run", max_minutes=1)
    assert (held.passes, saved_step(tmp_path / "run")) == (6, 4)
    assert not (tmp_path / "run" / "log.jsonl").exists()
    held.before = {10: lambda: now.__setitem__(0, 200.0)}
    assert not train("run", resume=True, max_minutes=1)  # a sitting has its look or a step, however short
    assert logged_steps(tmp_path / "run") == [4]


def test_a_look_that_is_cut_short_leaves_the_objective_as_it_was(train, held, tmp_path, monkeypatch):
    marks = torch.zeros(1)
    monkeypatch.setattr(PriorObjective, "state", lambda self: {"marks": marks})
    monkeypatch.setattr(PriorObjective, "load_state", lambda self, state: marks.copy_(state["marks"]))
    held.before = {0: lambda: marks.add_(1), 1: lambda: signal.raise_signal(signal.SIGTERM)}
    assert not train("run")
    assert read_tensors(tmp_path / "run" / "checkpoint.safetensors")[0]["objective.marks"] == 0


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


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_what_a_run_will_take_is_said_first_and_changes_nothing(train, tmp_path, console, monkeypatch, optimizer):
    chosen = settings(optimizer=optimizer)
    train("silent", chosen)
    assert "about" not in console.file.getvalue()
    monkeypatch.setattr(fit, "WORTH_SAYING", 2)
    train("said", chosen)
    shown = console.file.getvalue()
    assert re.search(r"about 1 min for 12 steps of \S+ s, beside looks at held-out data; at least \d+ MB beside", shown)
    assert shown.index("about 1 min") < shown.rindex("step 4/12")
    assert same_weights(weights(tmp_path / "silent"), weights(tmp_path / "said"))
    assert logged_losses(tmp_path / "silent") == logged_losses(tmp_path / "said")
    train("parts", chosen, max_minutes=0)
    train("parts", chosen, resume=True)
    assert "for 11 steps" in console.file.getvalue()  # as measured: without another trial
    assert same_weights(weights(tmp_path / "said"), weights(tmp_path / "parts"))
