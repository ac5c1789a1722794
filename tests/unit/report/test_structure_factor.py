"""Structure factors: spin waves, the sum over frequencies, and the figure."""

import numpy as np
import pytest

import coadjoint as cj
from coadjoint.report import figures
from coadjoint.report.selection import Selection


@pytest.fixture(scope="module")
def waves():
    """Small waves on a ferromagnetic chain in a field B."""
    S = np.tile([0.0, 0.0, 1.0], (12, 1)) + 1e-3 * np.random.default_rng(0).standard_normal((12, 3))
    system, start = cj.models.spin_lattice(12, field=(0, 0, 0.5), S0=S / np.linalg.norm(S, axis=1)[:, None])
    return cj.solve(system, start, t1=100.0, dt=0.05, save_every=4)


def test_spin_waves_have_their_dispersion(waves):
    """ω = 2J(1 − cos q) + B, to the resolution 2π/T; integrated over ω it is the static structure factor."""
    found = cj.structure_factor(waves, 12, window="none")
    assert found["S"].dims == ("q_x", "omega") and float(found["q_x"][0]) == -np.pi
    across = found["S_component"].isel(component=0)
    peak = abs(across.where(found["omega"] > 0, 0.0).idxmax("omega"))
    np.testing.assert_allclose(peak, 2 * (1 - np.cos(found["q_x"])) + 0.5, rtol=0, atol=2 * np.pi / 100)
    spins = np.asarray(waves.mu).reshape(-1, 12, 3)
    static = (np.abs(np.fft.fft(spins, axis=1)) ** 2).sum(-1).mean(0) / 12
    step = float(found["omega"][1] - found["omega"][0])
    np.testing.assert_allclose(found["S"].sum("omega") * step, np.fft.fftshift(static), rtol=1e-12, atol=1e-12)


def test_signs_of_wave_vectors_and_frequencies():
    """A wave cos(q x − ω t) is at (q, ω) and (−q, −ω), in two dimensions too."""
    t = 0.25 * np.arange(64)
    x, _ = np.meshgrid(np.arange(6), np.arange(4), indexing="ij")
    q, omega = 2 * np.pi / 6, 2 * np.pi * 5 / 16
    wave = np.cos(q * x - omega * t[:, None, None])[..., None] * np.ones((6, 4, 1))
    found = cj.structure_factor((t, np.stack([wave, 2 * wave])), (6, 4), window="none")
    best = found["S"].where(found["omega"] > 0, 0.0)
    at = best.argmax(...)
    assert float(best["q_x"][at["q_x"]]) == pytest.approx(q) and float(best["q_y"][at["q_y"]]) == 0.0
    assert float(best["omega"][at["omega"]]) == pytest.approx(omega)
    once = cj.structure_factor((t, wave), (6, 4), window="none")
    np.testing.assert_allclose(found["S"], 2.5 * once["S"], atol=1e-12)  # the mean over members


def test_ensembles_stores_and_figures(tmp_path):
    system, start = cj.models.spin_lattice((4, 4), field=(0, 0, 1.0))
    run = {"members": 3, "t1": 6.4, "dt": 0.1}
    ens = cj.ensemble(system, start, **run)
    stored = cj.ensemble(system, start, **run, out=tmp_path / "run.zarr")
    expected = cj.structure_factor(ens, (4, 4), start=1.0)
    assert expected.attrs["members"] == 3
    for same in (stored, stored.open(), ens.to_xarray()):
        np.testing.assert_array_equal(cj.structure_factor(same, (4, 4), start=1.0)["S"], expected["S"])
    fig = figures.draw(tmp_path / "run.zarr", "structure", "light", Selection())
    assert [label.get_text() for label in fig.axes[0].get_xticklabels()] == ["Γ", "X", "M", "Γ"]
    assert "3 members" in fig.axes[0].get_title()


@pytest.mark.parametrize(
    "shape, options, message",
    [
        (7, {}, "7 sites, which does not fit"),
        ((12, 1, 1, 1), {}, "one to three sides"),
        (12, {"start": 99.9}, "at least four saved times"),
        (12, {"window": "flat"}, "window must be one of"),
    ],
)
def test_what_is_not_supported(waves, shape, options, message):
    with pytest.raises(ValueError, match=message):
        cj.structure_factor(waves, shape, **options)


def test_times_that_are_not_equally_spaced(waves):
    uneven = np.array([0, 1, 2, 4, 8])
    with pytest.raises(ValueError, match="equally spaced"):
        cj.structure_factor((waves.t[uneven], waves.mu[uneven]), 12)
