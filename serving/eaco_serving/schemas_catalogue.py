"""What goes over the wire for ``/catalogue``: strict, no unknown fields, finite numbers only."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from eaco_serving.schemas import MAX_BATCH_SIZE, Name, Positive, Wire


class RegistrationIn(Wire):
    """Under which name a graph is registered."""

    model: Name = Field(description="A name of your own, which no reference job has.", examples=["our-detector"])
    samples_per_epoch: Positive | None = Field(
        default=None, description="Taken for jobs of this model that do not state it."
    )
    replace: bool = Field(default=False, description="Take the place of another graph of this name.")


class RegisterIn(RegistrationIn):
    """A graph and the name that jobs call it by."""

    graph: dict[str, Any] = Field(description="The JSON that `eaco features extract` writes.")


class JobQuery(BaseModel):
    """What is asked of one job of the catalogue."""

    model_config = ConfigDict(extra="forbid")

    batch_size: Annotated[int, Field(ge=1, le=MAX_BATCH_SIZE)] | None = Field(
        default=None, description="Batch size per GPU that the totals are for; the job's first when left out."
    )
    graph: bool = Field(default=False, description="With the graph itself, as POST takes it.")


class FigureOut(Wire):
    """A count and where it is from; ``recorded`` is read off the graph."""

    value: int
    status: Literal["published", "hand-derived", "recorded"]
    source: str
    input_shape: list[int] | None = Field(description="One sample's, where the count is not for the job's own input.")


class PhasesOut(Wire):
    """A total of each phase of a step."""

    fwd: float
    bwd: float
    opt: float


class TotalsOut(Wire):
    """One training step at a batch size, summed over the graph."""

    batch_size: int
    samples: float = Field(description="Samples that the step consumes.")
    gflop: PhasesOut
    moved_mib: PhasesOut
    kernels: PhasesOut
    peak_memory_mib: float = Field(description="Estimate, without a process's context.")
    saved_activation_mib: float
    optimizer_state_mib: float
    dynamic_ops: int
    confidence: float


class CatalogueJobOut(Wire):
    """A job of the catalogue with its graph's totals."""

    name: str
    kind: Literal["reference", "registered"]
    family: str = Field(description="What the model of a job must mean for this graph to be used.")
    dataset: str | None
    batch_sizes: list[int] = Field(description="Usual ones; of a registered graph the one that it was recorded at.")
    samples_per_epoch: float | None
    optimizer: str | None
    parameters: FigureOut
    forward_macs: FigureOut | None = Field(description="Multiply-adds of one sample's forward pass.")
    content_hash: str
    totals: TotalsOut


class CatalogueOut(Wire):
    """Every reference job, then every registered graph."""

    jobs: list[CatalogueJobOut]


class CatalogueJobWithGraphOut(CatalogueJobOut):
    """A job of the catalogue; ``graph`` is null unless asked for."""

    graph: dict[str, Any] | None
