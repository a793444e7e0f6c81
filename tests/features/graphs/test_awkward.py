"""Awkward jobs: each is recorded or fails with one clear line, and whoever asked lives on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from eaco_datasets.errors import EacoError, InputError, MissingExtraError
from eaco_features.graphs import extract as extraction
from eaco_features.graphs.extract import extract
from eaco_features.graphs.graph import ModelGraph
from eaco_features.graphs.store import dumps, loads
from eaco_features.graphs.vocabulary import UNKNOWN

torch = pytest.importorskip("torch", reason="torch is not installed (eaco[gnn])")

from eaco_features.graphs.recorder import record, trace  # noqa: E402

HERE = Path(__file__).parent
FOUR_GIB = 4096

FRIENDLY = (  # noqa: SIM905
    "control_flow custom_autograd shared_weights complex_input fourier integer_input sparse_gradient checkpointed"
    " on_cuda mixed_precision compiled no_optimizer inference_only hand_written_update accumulation masked"
    " per_sample_loop ctc packed_lstm deep_copied_transformer gradient_penalty lbfgs logs_its_loss"
    " model_made_at_import numpy_inside bidirectional_gru learned_attention_bias terabyte_on_fake_tensors"
    " formats_its_loss times_itself teacher_in_inference_mode per_sample_gradients sparse_adjacency bilinear"
).split()
REAL = {"numpy_inside"}
NOT_AFFINE = {"per_sample_loop"}


@pytest.fixture(scope="module")
def recorded(awkward: ModuleType) -> Callable[[str], ModelGraph]:
    """The graph of a friendly job at batch size 4, recorded once."""
    known: dict[str, ModelGraph] = {}

    def get(name: str) -> ModelGraph:
        if name not in known:
            known[name] = record(getattr(awkward, name), 4, name=name)
        return known[name]

    return get


@pytest.mark.parametrize("name", FRIENDLY)
def test_awkward_but_friendly_jobs_are_recorded(recorded: Callable[[str], ModelGraph], name: str) -> None:
    graph = recorded(name)
    assert loads(dumps(graph)) == graph
    assert graph.recording.mode == ("real" if name in REAL else "fake")
    assert graph.recording.affine is (name not in NOT_AFFINE)
    assert UNKNOWN not in graph.op_class
    expected = {"no_optimizer": {"fwd", "bwd"}, "inference_only": {"fwd"}}.get(name, {"fwd", "bwd", "opt"})
    assert set(graph.phase) == expected
    assert graph.at(9).bytes_moved.sum() > 0


def test_data_dependence_is_counted(recorded: Callable[[str], ModelGraph]) -> None:
    assert recorded("control_flow").recording.value_reads == 1
    assert recorded("logs_its_loss").recording.value_reads == 1
    assert recorded("masked").recording.shape_guesses == 3
    assert recorded("packed_lstm").recording.shape_guesses == 1
    assert recorded("custom_autograd").recording.dynamic_ops == 0
    assert recorded("masked").recording.confidence < recorded("control_flow").recording.confidence < 1


def test_what_was_missing_is_noted(recorded: Callable[[str], ModelGraph]) -> None:
    assert recorded("inference_only").recording.notes == ("no backward pass ran", "no optimizer stepped")
    assert "numpy" in recorded("numpy_inside").recording.notes[0]
    assert recorded("numpy_inside").recording.batch_size == 2


def test_shared_weights_count_once(recorded: Callable[[str], ModelGraph]) -> None:
    assert recorded("shared_weights").recording.parameter_count == 8 * 8 + 2 * 8


def test_checkpointing_keeps_less_and_computes_more(recorded: Callable[[str], ModelGraph]) -> None:
    graph = recorded("checkpointed")
    assert graph.at(4).saved_activation_bytes.sum() == 0
    products = [phase for op, phase in zip(graph.op, graph.phase, strict=True) if op == "addmm"]
    assert products.count("fwd") == 2
    assert products.count("bwd") >= 1  # computed again for the backward pass


def test_mixed_precision_runs_products_in_half_and_steps(recorded: Callable[[str], ModelGraph]) -> None:
    graph = recorded("mixed_precision")
    assert {d for d, kind in zip(graph.dtype, graph.op_class, strict=True) if kind == "matmul"} == {"float16"}
    assert "_foreach_addcdiv_" in graph.op


def test_accumulation_has_the_samples_of_all_its_parts(recorded: Callable[[str], ModelGraph]) -> None:
    graph = recorded("accumulation")
    assert graph.at(4).samples == 16
    assert graph.at(10).samples == 40
    norms = [phase for op, phase in zip(graph.op, graph.phase, strict=True) if "norm" in op]
    assert set(norms) == {"opt"}


def test_a_loop_over_samples_has_exact_totals_at_any_batch(
    awkward: ModuleType, recorded: Callable[[str], ModelGraph]
) -> None:
    graph = recorded("per_sample_loop")
    direct = sum(kernel.flops for kernel in trace(awkward.per_sample_loop, 12).kernels)
    assert graph.at(12).flops.sum() == pytest.approx(direct, rel=1e-9)
    assert graph.recording.confidence < 1


def test_inference_mode_is_recorded_as_split_as_training_is(recorded: Callable[[str], ModelGraph]) -> None:
    graph = recorded("teacher_in_inference_mode")
    classes = [kind for kind, phase in zip(graph.op_class, graph.phase, strict=True) if phase == "fwd"]
    assert [classes.count(kind) for kind in ("matmul", "rnn", "attention")] == [2, 1, 1]
    costs = graph.at(6)
    assert all(costs.flops[i] > 0 for i, kind in enumerate(graph.op_class) if kind in ("matmul", "rnn", "attention"))


def test_a_product_with_a_sparse_matrix_costs_its_nonzeros(recorded: Callable[[str], ModelGraph]) -> None:
    graph = recorded("sparse_adjacency")
    flops = {
        phase: cost
        for kind, phase, cost in zip(graph.op_class, graph.phase, graph.at(6).flops, strict=True)
        if kind == "sparse"
    }
    assert flops == {"fwd": 2 * 6 * 30 * 8, "bwd": 2 * 6 * 30 * 8}


def test_a_bilinear_layer_multiplies_every_pair(recorded: Callable[[str], ModelGraph]) -> None:
    graph = recorded("bilinear")
    flops = [cost for op, cost in zip(graph.op, graph.at(6).flops, strict=True) if op == "_trilinear"]
    assert flops[0] == 2 * 6 * 3 * 5 * 7
    assert len(flops) == 2  # forward and the gradient to the weight; the inputs need none


def test_a_learned_bias_gets_its_gradient(recorded: Callable[[str], ModelGraph]) -> None:
    graph = recorded("learned_attention_bias")
    assert graph.op.count("eaco.attention_backward") == 1
    assert graph.recording.parameter_count == 8 * 8 + 8 + 2 * 5 * 5


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wrong_shapes", r"mat1 and mat2 shapes cannot be multiplied .* \(awkward_jobs\.py:\d+\)"),
        ("not_a_job", "build_job returned Linear; expected a TrainingJob"),
        ("nothing_done", "the step ran no tensor operation"),
        ("raises", r"LookupError: the data set is not here \(awkward_jobs\.py:\d+\)"),
        ("leaves_by_the_door", "SystemExit: bye"),
    ],
)
def test_a_job_that_fails_says_why_in_one_line(awkward: ModuleType, name: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        record(getattr(awkward, name), 4)
    assert "\n" not in str(caught.value)
    assert "; expected " in str(caught.value)


def test_a_loop_that_waits_for_a_value_falls_back_to_a_real_run(awkward: ModuleType) -> None:
    graph = record(awkward.waits_for_a_value, 4)
    assert graph.recording.mode == "real"
    assert "EndlessReadsError" in graph.recording.notes[0]


HOSTILE = {
    "never_returns": ("did not end within 4 s", 4.0),
    "allocates_a_terabyte": ("MemoryError.*expected a job that records within 4096 MiB", 60.0),
    "exits_at_once": ("ended with exit code 7", 60.0),
    "crashes": ("was ended by SIGSEGV", 60.0),
    "raises": ("LookupError: the data set is not here", 60.0),
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, ModelGraph | EacoError]:
    """What extracting each hostile job, one that forks and a good one led to; two at a time."""
    found: dict[str, ModelGraph | EacoError] = {}
    waiting = [*HOSTILE.items(), *((name, ("", 60.0)) for name in ("forks", "leaves_a_daemon", "checkpointed"))]

    def work() -> None:
        while waiting:
            name, (_, timeout_s) = waiting.pop(0)
            try:
                found[name] = extract(
                    f"awkward_jobs:{name}", 4, timeout_s=timeout_s, memory_mib=FOUR_GIB, search_path=[HERE]
                )
            except EacoError as error:
                found[name] = error

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_job_costs_one_line(outcomes: dict[str, ModelGraph | EacoError], name: str) -> None:
    error = outcomes[name]
    assert isinstance(error, InputError)
    with pytest.raises(InputError, match=HOSTILE[name][0]):
        raise error
    assert str(error).startswith(f"awkward_jobs:{name}: ")
    assert "\n" not in str(error)


def _running(word: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in path.read_bytes():
                return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("name", ["forks", "leaves_a_daemon"])
def test_a_job_that_forks_is_recorded_and_leaves_no_process(
    outcomes: dict[str, ModelGraph | EacoError], name: str
) -> None:
    assert isinstance(outcomes[name], ModelGraph)
    assert any(not _running(f"awkward_jobs:{name}") for _ in range(500))  # a killed process takes a moment to end


@pytest.mark.slow
def test_a_process_of_its_own_records_the_same_graph(
    outcomes: dict[str, ModelGraph | EacoError], recorded: Callable[[str], ModelGraph]
) -> None:
    assert outcomes["checkpointed"] == recorded("checkpointed")


@pytest.mark.parametrize(
    "spec", ["", "module", "module:", ":build_job", "a b:c", "../x:y", "module:build job", "-c:print"]
)
def test_a_name_that_is_none_is_refused_before_anything_starts(spec: str) -> None:
    with pytest.raises(InputError, match=r"expected pkg\.mod:build_job"):
        extract(spec, 4)


@pytest.mark.parametrize(
    ("options", "place"),
    [({"batch_size": 0}, "batch_size"), ({"timeout_s": 0}, "timeout_s"), ({"timeout_s": float("nan")}, "timeout_s"),
     ({"memory_mib": -1}, "memory_mib")],
)  # fmt: skip
def test_limits_that_are_none_are_refused(options: dict[str, float], place: str) -> None:
    with pytest.raises(InputError, match=f"^{place}: .* expected more than 0"):
        extract("m:b", **{"batch_size": 4, **options})  # type: ignore[arg-type]


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match=r"eaco\[gnn\]"):
        extract("m:b", 4)


def test_builders_are_found_by_name() -> None:
    from eaco_features.graphs.child import load_builder

    assert load_builder("eaco_features.graphs.recorder:record") is record
    for spec, said in (
        ("no_such_module:f", "cannot import no_such_module: ModuleNotFoundError"),
        ("eaco_features.graphs.recorder:nothing", "has no 'nothing'"),
        ("eaco_features.graphs.recorder:REAL_BATCH", "REAL_BATCH is int"),
    ):
        with pytest.raises(InputError, match=said):
            load_builder(spec)
