"""Attitude and gyro bias of a satellite: the filter of the case study beside a multiplicative extended Kalman filter.

The reference estimates attitude R, rate ω and bias b with their covariance. The error of the attitude is a rotation
vector θ in the body frame, R_true = R exp(θ). Its equations are θ' = δω − ω×θ, I δω' = (Iω)×δω + (I δω)×ω + torque.
"""

import runpy
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
SEEDS = 6


def hat(v):
    return np.array([[0, -v[2], v[1]], [v[2], 0, -v[0]], [-v[1], v[0], 0]])


def reference(example, observations, substeps=20):
    """Estimates (R, ω, b), standard deviations and log evidence after each observation."""
    J, unknown = example["INERTIA"], example["UNKNOWN"]
    R, w, b = Rotation.identity(), example["RATE"].copy(), np.zeros(3)
    P = np.diag(np.repeat([unknown["attitude"], unknown["rate"], unknown["bias"]], 3) ** 2)
    dt = example["DT"] * example["STEPS"] / substeps
    Q = dt * np.diag(np.concatenate([np.zeros(3), (example["TORQUE"] / J) ** 2, np.full(3, example["DRIFT"] ** 2)]))
    H = np.block([[np.eye(3), np.zeros((3, 6))], [np.zeros((3, 3)), np.eye(3), np.eye(3)]])
    noise = np.diag(np.concatenate([example["TRACKER"].noise, example["GYRO"].noise]) ** 2)
    rows, evidence = [], 0.0
    for y in observations:
        for _ in range(substeps):
            A = np.zeros((9, 9))
            A[:3, :3], A[:3, 3:6] = -hat(w), np.eye(3)
            A[3:6, 3:6] = (hat(J * w) - hat(w) * J) / J[:, None]
            F = np.eye(9) + dt * A + 0.5 * dt**2 * A @ A
            middle = w + 0.5 * dt * np.cross(J * w, w) / J
            R, w = R * Rotation.from_rotvec(dt * middle), w + dt * np.cross(J * middle, middle) / J
            P = F @ P @ F.T + Q
        error = np.concatenate([(R.inv() * Rotation.from_quat(y[:4], scalar_first=True)).as_rotvec(), y[4:] - w - b])
        S = H @ P @ H.T + noise
        K = P @ H.T @ np.linalg.inv(S)
        evidence -= 0.5 * (error @ np.linalg.solve(S, error) + np.linalg.slogdet(2 * np.pi * S)[1])
        move, P = K @ error, (np.eye(9) - K @ H) @ P
        R, w, b = R * Rotation.from_rotvec(move[:3]), w + move[3:6], b + move[6:]
        rows.append((R.as_matrix(), w, b, np.sqrt(np.diag(P)), evidence))
    return tuple(np.array(x) for x in zip(*rows, strict=True))


def test_the_filter_is_calibrated_and_agrees_with_the_reference():
    """Bands of 90 % cover the truth .85 to .95 of the time; means, spreads and evidence are those of the reference."""
    example = runpy.run_path(str(ROOT / "examples" / "satellite.py"))
    names, coverage, distances, evidence = ("attitude", "rate", "bias"), [], [], []
    for seed in range(SEEDS):
        found = example["estimate"](seed)
        true, run = found["true"], found["run"]
        R, w, b, deviations, total = reference(example, true["y"])
        turned = (Rotation.from_matrix(true["attitude"]).inv() * Rotation.from_matrix(R)).as_rotvec()
        exact = {"attitude": turned, "rate": w - true["rate"], "bias": b - true["bias"]}
        coverage.append([found[f"coverage of the {name}"] for name in names])
        for k, name in enumerate(names):
            own = deviations[:, 3 * k : 3 * k + 3]
            distances.append(np.sqrt(np.mean(((found["error"][name] - exact[name]) / own)[5:] ** 2)))
            ratio = found["spread"][name] / own
            assert 0.9 < ratio[5:].mean() < 1.05 and 0.75 < ratio[5:].mean(axis=0).min()
        evidence.append(run.log_evidence[-1] - total[-1])
        norms = np.linalg.norm(jax.tree.leaves(run.g)[0], axis=(1, 2))
        np.testing.assert_allclose(norms, np.sqrt(3.0), rtol=1e-12)
    means = np.mean(coverage, axis=0)
    assert np.all(means > 0.84) and np.all(means < 0.96) and 0.85 < means.mean() < 0.95
    assert max(distances) < 0.5 and np.mean(distances) < 0.3  # in standard deviations of the reference
    assert np.mean(np.abs(evidence)) < 15  # of some 2200
