"""Batches that run in parallel threads never share a buffer."""

import pytest

import coadjoint as cj
from coadjoint.runtime.backends import prepare_program
from coadjoint.runtime.planning import plan_ensemble
from coadjoint.runtime.sinks import Memory
from coadjoint.store.recorder import recording
from coadjoint.store.store_output import StoreOutput


class LetsOthersIn:
    """As a sink whose arrays JAX frees: it lets go of Python's lock, and another thread asks for a place meanwhile."""

    def __init__(self, output, asked):
        self.output, self.asked = output, asked

    def __del__(self):
        self.asked.append(self.output.sink(1))


@pytest.mark.parametrize("where", ["memory", "store"])
def test_no_tile_gets_the_place_of_another(where, tmp_path):
    """It did, once in hundreds of runs: the members of one were lost, and the other's were written twice."""
    system, mu0 = cj.models.rigid_body()
    about = {"t0": 0.0, "t1": 0.1, "dt": 0.1, "key": 0, "driver": None, "integrator": cj.TMK(), "save_every": 1}
    about |= {"params": None, "reduce": None, "save": None, "group": False, "throw": True, "backend": "xla"}
    plan = plan_ensemble(system, mu0, members=4, stored=True, **about)
    program = prepare_program(plan)
    with recording([plan], [program], (), tmp_path / "run.zarr", False) as store:
        output = Memory(plan) if where == "memory" else StoreOutput(store, 0, plan, program)
        asked = []
        output.last = LetsOthersIn(output, asked)
        mine = output.sink(0)
        assert len(asked) == 1
        assert mine is not asked[0]
