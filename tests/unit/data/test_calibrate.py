"""Coarse-graining of runs, and noise from empirical orthogonal functions."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import coadjoint as cj
from coadjoint.data.coarse_grain import truncated

SPHERE, TORUS = cj.fluids.Sphere(5), cj.fluids.Torus(5)


def series(surface, count=400, h=0.1, tau=0.5, modes=3):
    """A field with a constant part and a small number of modes, whose coefficients are Ornstein–Uhlenbeck processes."""
    rng = np.random.default_rng(1)
    patterns = np.stack([np.asarray(cj.fluids.random_field(surface, k, peak=2.0)) for k in range(modes + 1)])
    a = np.zeros((count, modes))
    for j in range(1, count):
        a[j] = np.exp(-h / tau) * a[j - 1] + np.sqrt(1 - np.exp(-2 * h / tau)) * rng.normal(size=modes)
    omega = patterns[0] + np.tensordot(a * [1.0, 0.5, 0.25][:modes], patterns[1:], axes=1)
    return cj.data.FieldSeries(surface, h * np.arange(count), omega)


def test_coarse_graining_of_one_layer():
    """It takes the modes of that layer; the layer has to be named."""
    system, mu0 = cj.models.multilayer_qg(7, layers=2, rotation=1.0)
    flow = cj.fluids.of(system)
    run = SimpleNamespace(t=np.array([0.0, 0.5]), mu=np.stack([mu0, 2.0 * np.asarray(mu0)]), system=system)
    expected = np.asarray(flow.vorticity_coefficients(run.mu))[:, 1, :25]
    series = cj.data.coarse_grain(run, 5, layer=1)
    np.testing.assert_array_equal(series.vorticity, expected)
    for options, said in [({}, "layer must be a layer"), ({"layer": 2}, "0 to 1 from the top, not 2")]:
        with pytest.raises(ValueError, match=said):
            cj.data.coarse_grain(run, 5, **options)
    with pytest.raises(ValueError, match="layer = 0 is for runs"):
        cj.data.coarse_grain(series, 5, layer=0)
    coarse = cj.fluids.of(cj.models.multilayer_qg(5, layers=2)[0])
    with pytest.raises(TypeError, match="flow has several layers"):
        series.states(coarse)


def test_coarse_graining_of_runs_and_stores(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["coadjoint.data.coarse_grain"], "_BLOCK", 4 * 16 * 49)  # four states at once
    for model in (cj.models.euler_sphere, cj.models.sine_euler):
        system, W0 = model(7, **({"noise_modes": None} if model is cj.models.sine_euler else {}))
        flow = cj.fluids.of(system)
        run = cj.solve(system, W0, t1=1.0, dt=0.1)
        store = tmp_path / f"{model.__name__}.zarr"
        cj.solve(system, W0, t1=1.0, dt=0.1, out=store)
        found = cj.data.coarse_grain(run, 5)
        assert found.surface.n == 5 and len(found) == 11
        same = cj.data.coarse_grain(store, 5, flow=flow, first=0.5)
        np.testing.assert_allclose(same.vorticity, found.between(0.5, 1.0).vorticity, atol=1e-14)
        again = cj.data.coarse_grain(cj.data.coarse_grain(run, 7), 5)
        np.testing.assert_array_equal(again.vorticity, found.vorticity)
        # the coarse field has the values of the fine field without its small scales
        fine = np.array(flow.vorticity_coefficients(run.mu[-1]))
        at = truncated(flow.surface, found.surface, np.arange(fine.size).reshape(fine.shape))
        kept = np.isin(np.arange(fine.size), at).reshape(fine.shape)
        np.testing.assert_allclose(
            found.surface.values(found.vorticity[-1], 8), flow.surface.values(np.where(kept, fine, 0), 8), atol=1e-12
        )
        coarse = cj.fluids.Flow(found.surface)
        np.testing.assert_allclose(coarse.vorticity_coefficients(found.states(coarse)), found.vorticity, atol=1e-13)
        with pytest.raises(TypeError, match="flow must be the flow of the fine system"):
            cj.data.coarse_grain(store, 5)
    assert cj.data.coarse_grain(run, 5).to_xarray()["vorticity"].dims == ("time", "m1", "m2")


@pytest.mark.parametrize("surface", [SPHERE, TORUS], ids=["sphere", "torus"])
def test_fields_are_eigenvectors_of_the_covariance(surface):
    """Σ β_k ⊗ β_k/2τ_k is the covariance of the fluctuation of ζ = −ψ."""
    data = series(surface)
    noise = cj.data.calibrate(data, window=3.0, variance=1.0)
    assert noise.size == 3 and noise.variance.sum() == pytest.approx(1.0)
    psi = data.stream
    kernel = np.ones(31) / 31
    mean = sum(w * psi[k : len(psi) - 30 + k] for k, w in enumerate(kernel))
    z = -(psi[15:-15] - mean).reshape(len(mean), -1)
    z = z - z.mean(axis=0)
    whole = np.einsum("ti,tj->ij", z, z.conj()) / len(z)
    scaled = (noise.fields / np.sqrt(2 * noise.times).reshape(-1, *(1,) * (data.vorticity.ndim - 1))).reshape(3, -1)
    np.testing.assert_allclose(np.einsum("ki,kj->ij", scaled, scaled.conj()), whole, atol=1e-12 * np.abs(whole).max())
    velocity = surface.eigenvalues.ravel()
    gram = np.einsum("ki,i,li->kl", scaled, velocity, scaled.conj())  # orthogonal in the velocity
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-12 * np.abs(gram).max())
    share = np.diag(gram).real / np.sum(velocity * np.diag(whole).real)
    np.testing.assert_allclose(share, noise.variance)
    assert cj.data.calibrate(data, window=3.0, fields=2, norm="vorticity").size == 2


def test_decorrelation_times():
    rng, h, tau, count = np.random.default_rng(0), 0.1, 0.7, 200_000
    rho = np.exp(-h / tau)
    a = np.zeros(count)
    noise = rng.normal(size=count)
    for j in range(1, count):
        a[j] = rho * a[j - 1] + noise[j]
    exact = h * (1 / (1 - rho) - 0.5)  # the trapezoidal rule of exp(−t/τ)
    assert cj.data.decorrelation_times(a[:, None], h)[0] == pytest.approx(exact, rel=0.05)


def test_white_noise_is_adequate_on_long_times_only():
    noise = cj.data.calibrate(series(SPHERE, 8000, tau=0.3), window=60.0, fields=3)
    short, long = (cj.data.whiteness(noise, interval) for interval in (0.2, 6.0))
    assert not short.attrs["adequate"] and long.attrs["adequate"]
    assert short["p_value"].max() < 1e-6 < 1e-3 < long["p_value"].min()
    np.testing.assert_allclose(long["ratio"], 1.0, atol=0.35)


def test_noise_of_systems(tmp_path):
    """The same element of the algebra as the model makes of the fields; scaled, saved, drawn."""
    for surface, model in ((SPHERE, cj.models.euler_sphere), (TORUS, cj.models.sine_euler)):
        noise = cj.data.calibrate(series(surface), window=3.0, fields=2).scaled(2.0)
        options = {} if model is cj.models.euler_sphere else {"noise_modes": None}
        system, W0 = model(5, noise_fields=noise.fields, **options)
        other = cj.System(system.algebra, system.h, noise=[noise], side="right", gradient=cj.fluids.of(system).stream)
        runs = [cj.solve(s, W0, t1=0.2, dt=0.1, key=1, backend="xla").mu for s in (system, other)]
        np.testing.assert_allclose(*runs, atol=1e-13)
        noise.save(tmp_path / "noise.npz")
        again = cj.data.load_noise(tmp_path / "noise.npz")
        assert again.surface == surface and repr(again) == repr(noise)
        np.testing.assert_array_equal(again.fields, noise.fields)
        assert len(noise.plot().axes) >= 4
    np.testing.assert_allclose(noise.fields, 2 * cj.data.calibrate(series(TORUS), window=3.0, fields=2).fields)
    coloured = cj.data.calibrate(series(SPHERE), window=3.0, fields=2, coloured=True)
    assert isinstance(coloured.driver(0), cj.OU) and isinstance(noise.driver(0), cj.Brownian)
    np.testing.assert_allclose(coloured.driver(0).tau, coloured.times)
    square = np.sum(SPHERE.eigenvalues * coloured.fields**2) / (4 * np.pi)
    assert coloured.rms_velocity() == pytest.approx(np.sqrt(square))


DATA = series(SPHERE, 40)
BROKEN = np.where(np.arange(40)[:, None] == 7, np.nan, DATA.vorticity)
BAD = [
    ("fields = 4 are too many for 30 samples", lambda: cj.data.calibrate(DATA, window=1.0, fields=4)),
    ("window = 9 must be between", lambda: cj.data.calibrate(DATA, window=9.0)),
    ("window = 0.01 must be between", lambda: cj.data.calibrate(DATA, window=0.01)),
    ("variance must be above 0", lambda: cj.data.calibrate(DATA, window=1.0, variance=0.0)),
    ("norm must be", lambda: cj.data.calibrate(DATA, window=1.0, norm="energy")),
    (r"NaN or an infinity at t = 0\.7", lambda: cj.data.FieldSeries(SPHERE, DATA.t, BROKEN)),
    (r"vorticity must have shape \(40, 36\)", lambda: cj.data.FieldSeries(cj.fluids.Sphere(6), DATA.t, DATA.vorticity)),
    ("equally spaced", lambda: cj.data.FieldSeries(SPHERE, DATA.t**2, DATA.vorticity)),
    ("n = 7 must not be above", lambda: cj.data.coarse_grain(DATA, 7)),
    ("first = 90", lambda: cj.data.coarse_grain(DATA, 3, first=90.0)),
    ("the series has 0 times", lambda: DATA.between(7.0, 8.0)),
    ("the flow is on Torus", lambda: DATA.states(cj.fluids.Flow(TORUS))),
    ("interval = 3 must be between", lambda: cj.data.whiteness(cj.data.calibrate(DATA, window=1.0, fields=1), 3.0)),
    ("whiteness needs the time series", lambda: cj.data.whiteness(cj.data.CalibratedNoise(np.eye(3)), 1.0)),
    ("only fields on a surface", lambda: cj.data.CalibratedNoise(np.eye(3)).rms_velocity()),
]


@pytest.mark.parametrize(("match", "call"), BAD, ids=range(len(BAD)))
def test_invalid_arguments(match, call):
    with pytest.raises(ValueError, match=match):
        call()


def test_invalid_types_and_files(tmp_path):
    with pytest.raises(TypeError, match="series must be a FieldSeries"):
        cj.data.calibrate(DATA.vorticity, window=1.0)
    with pytest.raises(TypeError, match="fine must be a store, a Solution or a FieldSeries"):
        cj.data.coarse_grain(3, 3)
    (tmp_path / "text.npz").write_text("text")
    with pytest.raises(ValueError, match="is not a calibrated noise"):
        cj.data.load_noise(tmp_path / "text.npz")
