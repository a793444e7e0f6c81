"""The paper's objective (equation 1), evaluated per set and normalised by the job's exclusive value.

``alpha * energy added + (1 - alpha) * mean epoch time added``, both for one epoch of the new job:

- energy added, J: over the set's GPUs, what they draw during that epoch less what the residents alone would have drawn
  for the work that they finish in it: ``t * (P_joined - P_present * mean(s_joined / s_present))``, ``s`` relative
  speed. A GPU that was empty counts with all its power. Divided by ``num_gpus * P_alone * t_alone``.
- epoch time added, s: mean over the new job and the residents of epoch time with it less without it (for the job:
  less its exclusive epoch time), each at its slowest GPU. Divided by ``t_alone``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from eaco_predictor.prediction import JobPrediction
from eaco_scheduler.forecast import Forecast
from eaco_scheduler.groups import Candidate, Group


def objective(candidate: Candidate, forecast: Forecast) -> float | None:
    """Normalised cost of a set, low is good; ``None`` when power or an epoch time that it needs is unknown."""
    alone = forecast.alone(candidate.parts[0][0].gpu)
    if alone.abstained is not None or alone.gpu_power_w is None:
        return None
    alone_s = _epoch_s(alone.jobs)
    joined_s = _epoch_s([job for group, _ in candidate.parts for job in forecast.joined(group).jobs[-1:]])
    exclusive_j = forecast.request.num_gpus * alone.gpu_power_w.mean * (alone_s or 0.0)
    if alone_s is None or joined_s is None or exclusive_j <= 0.0:
        return None
    added_j = [_energy_added_j(group, joined_s, forecast) for group, _ in candidate.parts]
    added_s = _epoch_added_s(candidate, joined_s - alone_s, forecast)
    known_j = [value for value in added_j if value is not None]
    if len(known_j) < len(added_j) or added_s is None:
        return None
    energy_j = math.fsum(value * count for value, (_, count) in zip(known_j, candidate.parts, strict=True))
    alpha = forecast.settings.alpha
    return alpha * energy_j / exclusive_j + (1.0 - alpha) * added_s / alone_s


def _epoch_s(found: Sequence[JobPrediction] | None) -> float | None:
    """Mean epoch time of one job at its slowest GPU; ``None`` unless known on each."""
    if found is None:
        return None
    known = [job.epoch_s.mean for job in found if job.epoch_s is not None]
    return max(known) if known and len(known) == len(found) else None


def _energy_added_j(group: Group, epoch_s: float, forecast: Forecast) -> float | None:
    """What one GPU of this group draws more because of one epoch of the job."""
    joined, present = forecast.joined(group), forecast.present(group)
    if joined.abstained is not None or joined.gpu_power_w is None:
        return None
    if present is None:
        return joined.gpu_power_w.mean * epoch_s
    if present.abstained is not None or present.gpu_power_w is None:
        return None
    kept = fmean(
        after.relative_speed.mean / before.relative_speed.mean
        for after, before in zip(joined.jobs[:-1], present.jobs, strict=True)
    )
    return epoch_s * (joined.gpu_power_w.mean - present.gpu_power_w.mean * kept)


def _epoch_added_s(candidate: Candidate, own_added_s: float, forecast: Forecast) -> float | None:
    """Mean over the job and the set's residents of the epoch time that the placement adds."""
    added = [own_added_s]
    joined = [group for group, _ in candidate.parts]
    for resident in candidate.residents:
        before_s = _epoch_s(forecast.resident(resident.job_id))
        after_s = _epoch_s(forecast.resident(resident.job_id, joined, candidate.gpus))
        if before_s is None or after_s is None:
            return None
        added.append(after_s - before_s)
    return fmean(added)
