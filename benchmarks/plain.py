"""The same algorithm in plain SciPy and NumPy, as a straightforward baseline for onmf."""

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from .data import members_of


def plain_snpa(X: Any, r: int, steps: int = 500, tol: float = 1e-6) -> list[int]:
    """Run SNPA, and project all rows at once by accelerated projected gradient.

    As usual for this method, the gradient steps end when one moves by less than tol times the move of the first.
    """
    squares = np.asarray(X.multiply(X).sum(axis=1)).ravel()
    residuals, chosen = squares.copy(), []
    H = np.zeros((X.shape[0], 0))
    for _ in range(r):
        close = np.flatnonzero(residuals >= (1 - 1e-6) * residuals.max())
        chosen.append(int(close[np.argmax(squares[close])]))
        S = X[chosen].toarray()
        G, Q = X @ S.T, S @ S.T
        H = np.column_stack([H, np.zeros(X.shape[0])])
        Y, t, L, first = H, 1.0, np.linalg.norm(Q, 2), 0.0
        for _ in range(steps):
            new = project(Y - (Y @ Q - G) / L)
            t_new = (1 + np.sqrt(1 + 4 * t * t)) / 2
            moved = np.linalg.norm(new - H)
            Y, H, t = new + (t - 1) / t_new * (new - H), new, t_new
            first = first or moved
            if moved <= tol * first:
                break
        residuals = squares - 2 * np.einsum("ij,ij->i", H, G) + np.einsum("ij,ij->i", H @ Q, H)
    return chosen


def project(H: Any) -> Any:
    """Project the rows of H onto {h ≥ 0, Σ h ≤ 1}."""
    P = np.maximum(H, 0)
    over = np.flatnonzero(P.sum(axis=1) > 1)
    if len(over):
        U = -np.sort(-H[over], axis=1)
        cumulative = np.cumsum(U, axis=1) - 1
        last = (U - cumulative / np.arange(1, H.shape[1] + 1) > 0).sum(axis=1)
        P[over] = np.maximum(H[over] - (cumulative[np.arange(len(over)), last - 1] / last)[:, None], 0)
    return P


def plain_fit(X: Any, r: int, max_iter: int = 100, tol: float = 1e-6, init: Any = None) -> int:
    """Run KL-ONMF, and return the number of iterations."""
    n = X.shape[0]
    W = (X[plain_snpa(X, r)].toarray() if init is None else init).astype(float)
    sums = np.asarray(X.sum(axis=1)).ravel()
    previous = None
    for iteration in range(1, max_iter + 1):
        labels = np.asarray(X @ np.log(W / W.sum(axis=1, keepdims=True) + 1e-3).T).argmax(axis=1)
        norms = np.sqrt(np.bincount(labels, weights=sums**2, minlength=r))
        H = csr_array((sums / norms[labels], labels, np.arange(n + 1)), shape=(n, r))
        W = (members_of(labels, r).T @ X).toarray() / np.maximum(H.sum(axis=0), 1e-300)[:, None]
        if previous is not None and np.sqrt((H - previous).power(2).sum()) < tol:
            return iteration
        previous = H
    return max_iter
