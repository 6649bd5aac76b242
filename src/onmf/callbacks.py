"""scikit-learn's callbacks (progress bars, score monitors), if the installed version has them."""

from typing import Any

from onmf.divergence import Divergence, FloatArray
from onmf.fit import Iteration, Listener
from onmf.fit.restarts import Watch

__all__ = ["CallbackSupportMixin", "FitReporter", "with_callbacks"]

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stand-in without callbacks: ``set_callbacks`` is missing, as in scikit-learn's own estimators."""

    def with_callbacks(method: Any) -> Any:
        """Return the method unchanged."""
        return method


class FitReporter(Listener):
    """Reports the progress of a fit to the estimator's callbacks and, if ``verbose``, to the terminal.

    The iterations are subtasks of the fit; with several runs, of the runs, which are subtasks of the fit.
    """

    def __init__(self, estimator: Any, divergence: Divergence, X: Any, sample_weight: Any, n_init: int) -> None:
        self.estimator, self.divergence, self.several = estimator, divergence, n_init > 1
        metadata = {} if sample_weight is None else {"sample_weight": sample_weight}
        self.arguments = {"estimator": estimator, "X": X, "metadata": metadata}
        self.run: Any = None
        begin = getattr(estimator, "_init_callback_context", lambda max_subtasks: None)
        self.root = begin(max_subtasks=n_init if self.several else estimator.max_iter)
        if self.root is not None:
            self.root.call_on_fit_task_begin(**self.arguments)

    @property
    def watch(self) -> Watch | None:
        return self.iteration if self.estimator.verbose or getattr(self.estimator, "_skl_callbacks", None) else None

    def begin_run(self) -> None:
        """Report the beginning of a run."""
        self.end_run()
        self.run = self.root
        if self.root is not None and self.several:
            self.run = self.root.subcontext(task_name="run", max_subtasks=self.estimator.max_iter)
            self.run.call_on_fit_task_begin(**self.arguments)

    def iteration(self, run: int, iteration: Iteration, centroids: FloatArray) -> bool:
        """Report the end of an iteration. → whether a callback asks to stop"""
        if self.estimator.verbose:
            task_name = f"run {run + 1}, iteration" if self.several else "iteration"
            print(
                f"{task_name} {iteration.number}: objective {iteration.objective:.9g}, "
                f"{iteration.moved} rows moved, H changed by {iteration.change:.2e}, {iteration.seconds:.3f} s"
            )
        if self.run is None:
            return False
        task = self.run.subcontext(task_name="iteration")
        task.call_on_fit_task_begin(**self.arguments)
        stop = task.call_on_fit_task_end(
            reconstruction_attributes=lambda: {"cluster_centers_": centroids.copy(), "divergence_": self.divergence},
            **self.arguments,
        )
        return bool(stop)

    def end_run(self) -> None:
        """Report the end of the run."""
        if self.run is not None and self.several:
            self.run.call_on_fit_task_end(**self.arguments)
        self.run = None

    def end(self) -> None:
        """Report the end of the local search and of the fit, when the estimator has all its attributes."""
        if self.estimator.verbose and self.estimator.n_sweeps_:
            print(
                f"local search: {self.estimator.n_sweeps_} sweeps, objective {self.estimator.reconstruction_err_:.9g}"
            )
        self.end_run()
        if self.root is not None:
            self.root.call_on_fit_task_end(reconstruction_attributes=dict, **self.arguments)
