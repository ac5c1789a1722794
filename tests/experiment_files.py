"""An experiment as a file and as tables, the run it describes, and the command that runs it."""

import json

from typer.testing import CliRunner

import coadjoint as cj
from coadjoint.command.cli import app

TEXT = """
[model]
name = "rigid_body"
inertia = [4, 2, 1]
alpha = [0.1, 0.2, 0.3]

[run]
t1 = 2.0
dt = 0.05
key = 3
save_every = 4
integrator = "EulerMaruyamaMK"
"""
TABLES = {
    "model": {"name": "rigid_body", "inertia": [4, 2, 1], "alpha": [0.1, 0.2, 0.3]},
    "run": {"t1": 2.0, "dt": 0.05, "key": 3, "save_every": 4, "integrator": "EulerMaruyamaMK"},
}
EM = cj.EulerMaruyamaMK()


def tables(**changes):
    """The tables with some values changed, by their full names; None removes one."""
    out = json.loads(json.dumps(TABLES))
    for name, value in changes.items():
        section, _, key = name.partition("__")
        if value is None:
            del out[section][key]
        else:
            out.setdefault(section, {})[key.replace("__", ".")] = value
    return out


def expected(t1=2.0, dt=0.05, key=3, save_every=4, **model):
    system, mu0 = cj.models.rigid_body(**({"inertia": (4, 2, 1), "alpha": (0.1, 0.2, 0.3)} | model))
    return cj.solve(system, mu0, t1=t1, dt=dt, key=key, save_every=save_every, integrator=EM)


def call(*arguments, code=0):
    """The command, in this process; its output."""
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output
