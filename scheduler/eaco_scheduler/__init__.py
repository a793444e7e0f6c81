"""Floor 4: cluster state and the EaCO decision.

Rooms, bottom up::

    checks <- cluster, settings <- decision (what is asked and answered) <- memory (who takes how much where)
    groups (alike GPUs, sets of them) <- candidates (to share), exclusive (to be alone on), reservation (to wait for)
    forecast (one batched prediction) <- judge, objective
    explain <- eaco (the decision)
    ledger (atomic admission) · lifecycle (provisional, final, undone) · history (what was observed)
    waiting (who waits, and who is tried again) <- dispatcher (all of it, event by event)
"""

from eaco_scheduler.eaco import decide

__all__ = ["decide"]
