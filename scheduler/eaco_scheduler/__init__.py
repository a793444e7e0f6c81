"""Floor 4: cluster state and the EaCO decision.

Rooms, bottom up::

    checks <- cluster, settings <- decision (what is asked and answered)
    candidates (sets that could be taken) <- forecast (one batched prediction) <- judge, objective
    reservation, explain <- eaco (the decision)
    ledger (atomic admission) · lifecycle (provisional, final, undone) · history (what was observed)
    queue (who waits, and who is tried again) <- dispatcher (all of it, event by event)
"""

from eaco_scheduler.eaco import decide

__all__ = ["decide"]
