"""`dlrm`: the deep learning recommendation model, with the options, random inputs and weights of Meta's program."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Self

from sonda.record.errors import SondaError, nearest
from sonda.workloads.description import SWITCH, Description, choice, normalise_names, number, option, whole, widths

if TYPE_CHECKING:
    from sonda.record.protocols import Task
    from sonda.workloads.networks.dlrm_draws import DlrmStream

REFUSED = {
    "activation_function": ("relu", "its layers always use ReLU"),
    "data_generation": ("random", "inputs are DLRM's random ones; data sets and traces are not read"),
    "data_set": ("kaggle", "data sets are not read"),
    "data_sub_sample_rate": ("0.0", "data sets are not read"),
    "data_trace_file": ("", "traces are not read"),
    "data_trace_enable_padding": ("false", "traces are not read"),
    "debug_mode": ("false", "it makes DLRM draw other weights"),
    "enable_profiling": ("false", "Sonda observes the program by itself"),
    "inference_only": ("false", "without training, a run is inference"),
    "loss_weights": ("1.0-1.0", "wbce is not offered"),
    "max_ind_range": ("-1", "data sets are not read"),
    "md_flag": ("false", "tables of mixed dimensions are not offered"),
    "nepochs": ("1", "Sonda decides how many steps are run"),
    "num_workers": ("0", "the run says how many processes load data"),
    "optimizer": ("sgd", "only SGD is offered"),
    "print_freq": ("1", "Sonda keeps every step"),
    "qr_flag": ("false", "quotient-remainder tables are not offered"),
    "quantize_emb_with_bit": ("32", "tables are float32"),
    "quantize_mlp_with_bit": ("32", "layers are float32"),
    "rand_data_dist": ("uniform", "only uniform rows are drawn"),
    "raw_data_file": ("", "data sets are not read"),
    "processed_data_file": ("", "data sets are not read"),
    "test_freq": ("-1", "Sonda decides how many steps are run"),
    "use_gpu": ("false", "the run's target says the device"),
    "weighted_pooling": ("", "bags are summed without weights"),
}
"""Options of DLRM's program that this one does not follow: the value it can accept, and why no other."""

BATCH = {"batch", "mini_batch_size"}


@dataclass(frozen=True)
class Recommender(Description):
    """Names and defaults are those of DLRM's command line (commit 090956e), where the meaning of each is explained.

    Weights and inputs follow `numpy-rand-seed` alone, as in DLRM: the seed of a run does not change them.
    `batch` is `mini-batch-size` and makes the stream at least one full batch long, where `data-size` is not given.
    A switch takes true or false; DLRM itself reads any text, `False` too, as true. `preset` names a published
    configuration (`dlrm_presets.toml`); options given beside it replace its values. Training repeats the full
    batches of the stream; where `data-size` leaves a smaller last batch, that one is left out, as steps must be alike.
    """

    arch_sparse_feature_size: int = option(2, whole(), "columns of every table")
    arch_embedding_size: tuple[int, ...] = option((4, 3, 2), widths(1), "rows of each table")
    arch_mlp_bot: tuple[int, ...] = option(
        (4, 3, 2), widths(2), "widths of the bottom perceptron, dense features first"
    )
    arch_mlp_top: tuple[int, ...] = option((4, 2, 1), widths(1), "widths of the top perceptron without its input")
    arch_interaction_op: str = option("dot", choice("dot", "cat"), "how features meet")
    arch_interaction_itself: bool = option(False, SWITCH, "dot: each feature with itself too")
    mini_batch_size: int = option(1, whole(), "samples in a step")
    data_size: int = option(1, whole(), "samples in the stream")
    num_batches: int = option(0, whole(0), "batches in the stream; other than 0 it replaces data-size")
    num_indices_per_lookup: int = option(10, whole(), "most rows in a bag, or all of them if fixed")
    num_indices_per_lookup_fixed: bool = option(False, SWITCH, "draw that many rows for every bag")
    numpy_rand_seed: int = option(123, whole(0), "of weights and inputs")
    round_targets: bool = option(False, SWITCH, "targets are 0 or 1")
    loss_function: str = option("mse", choice("mse", "bce"), "mean squared error or binary cross entropy")
    loss_threshold: float = option(0.0, number(), "keeps predictions this far from 0 and 1; 0 does not")
    learning_rate: float = option(0.01, number(), "of SGD")
    preset: str = ""

    @property
    def name(self) -> str:
        return "dlrm"

    @classmethod
    def from_options(cls, name: str, options: Mapping[str, str], **fixed: Any) -> Self:
        given = normalise_names(name, options)
        if set(given) >= BATCH:
            raise SondaError(f"{name}: batch is given twice, mini-batch-size is another name for it", "give it once")
        for key, (accepted, reason) in REFUSED.items():
            if key in given and given.pop(key).lower() != accepted:
                raise SondaError(f"{name} does not follow {key.replace('_', '-')}: {reason}", "leave it out")
        preset = given.pop("preset", "")
        defaults = preset_options(preset) if preset else {}
        if "batch" in given:
            given["mini_batch_size"] = given.pop("batch")
            if not {"data_size", "num_batches"} & set(given):
                # DLRM's own default is a stream of one sample, which would cut every batch down to one.
                defaults.setdefault("num_batches", "1")
        given = {**defaults, **given}
        return super().from_options(name, given, preset=preset, **fixed)

    def check(self) -> None:
        if self.arch_mlp_bot[-1] != self.arch_sparse_feature_size:
            raise SondaError(
                f"dlrm: the bottom perceptron ends in {self.arch_mlp_bot[-1]} features, "
                f"tables have {self.arch_sparse_feature_size} columns",
                "make the last number of arch-mlp-bot equal to arch-sparse-feature-size",
            )
        if self.arch_mlp_top[-1] != 1:
            raise SondaError(
                f"dlrm: the top perceptron ends in {self.arch_mlp_top[-1]} numbers, a prediction is one",
                "end arch-mlp-top with -1",
            )
        if self.loss_threshold >= 0.5:
            raise SondaError(f"dlrm: loss-threshold {self.loss_threshold:g} leaves nothing", "use less than 0.5")

    @property
    def samples(self) -> int:
        """Samples in a step."""
        return min(self.mini_batch_size, self.stream_size)

    @property
    def stream_size(self) -> int:
        """Samples in the whole stream."""
        return self.num_batches * self.mini_batch_size if self.num_batches else self.data_size

    @property
    def top_input(self) -> int:
        """Width of what the interaction hands to the top perceptron."""
        vectors = len(self.arch_embedding_size) + 1
        columns = self.arch_sparse_feature_size
        if self.arch_interaction_op == "cat":
            return vectors * columns
        itself = 1 if self.arch_interaction_itself else -1
        return columns + vectors * (vectors + itself) // 2

    @property
    def table_bytes(self) -> int:
        """Bytes of all tables together, float32."""
        return sum(self.arch_embedding_size) * self.arch_sparse_feature_size * 4

    def stream(self) -> DlrmStream:
        """The random inputs."""
        from sonda.workloads.networks.dlrm_draws import DlrmStream

        return DlrmStream(
            rows=self.arch_embedding_size,
            dense_features=self.arch_mlp_bot[0],
            mini_batch_size=self.mini_batch_size,
            data_size=self.stream_size,
            indices_per_lookup=self.num_indices_per_lookup,
            fixed=self.num_indices_per_lookup_fixed,
            round_targets=self.round_targets,
            seed=self.numpy_rand_seed,
        )

    def parameters(self) -> dict[str, Any]:
        return {"batch": self.samples, **super().parameters(), **({"preset": self.preset} if self.preset else {})}

    def in_torch(self, train: bool, seed: int) -> Task:
        from sonda.workloads.in_torch.dlrm import build

        return build(self, train)

    def first_step(self) -> Task:
        """The first inference step in PyTorch; of the tables, which may be of any size, only rows that it looks up."""
        from sonda.workloads.in_torch.dlrm import build_first_step

        return build_first_step(self)


def presets() -> dict[str, dict[str, Any]]:
    """Published configurations by name, as `dlrm_presets.toml` holds them, each with its source."""
    text = (files("sonda.workloads.networks") / "dlrm_presets.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def preset_options(preset: str) -> dict[str, str]:
    """The text options of a preset; raises SondaError when there is none of that name."""
    known = presets()
    if preset not in known:
        raise SondaError(f"dlrm has no preset {preset!r}", nearest(preset, known))
    options = {key.replace("-", "_"): str(value) for key, value in known[preset].items() if key != "source"}
    tables = int(options.pop("tables", "0"))
    if tables:
        options["arch_embedding_size"] = "-".join([options["arch_embedding_size"]] * tables)
    return options
