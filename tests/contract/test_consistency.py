"""Classes of users: promises that a subclass must make itself, and contradictions that are refused."""

from dataclasses import dataclass

import numpy as np
import pytest
from examples.weighted_divergence import WeightedKullbackLeibler
from fuzz.divergences import Doubled, Root, SquaredDistance
from scipy.sparse import csr_array

from onmf import ONMF
from onmf.divergence import (
    Bernoulli,
    Convex,
    Cosine,
    Frobenius,
    KullbackLeibler,
    NegativeBinomial,
    TemplateForm,
)
from onmf.divergence.base import PROMISES
from onmf.divergence.consistency import check_consistent

X = np.random.default_rng(0).poisson(3.0, size=(30, 5)) + np.eye(30, 5)


def subclass(kind, **body):
    """A subclass as a user writes it, with the given methods and attributes."""
    return dataclass(frozen=True)(type("Own", (kind,), {"__module__": "a user's", **body}))


def same(kind, method):
    """The method of a class, overridden by itself."""
    return lambda self, *args: getattr(kind, method)(self, *args)


@pytest.mark.parametrize("kind", [KullbackLeibler, Frobenius, Cosine, Bernoulli, NegativeBinomial])
@pytest.mark.parametrize("promise", PROMISES)
def test_a_subclass_makes_promises_about_its_own_methods_itself(kind, promise):
    made, plain = kind(), None if promise in ("template_form", "moves", "kernel_functions", "cuda_functions") else False
    promised = getattr(made, promise, plain)
    for method in PROMISES[promise]:
        if not hasattr(kind, method):
            continue
        other = subclass(kind, **{method: same(kind, method)})
        mixin = type("Mixin", (), {method: same(kind, method)})
        for own in (other, subclass(other), type("Mixed", (mixin, kind), {})):
            assert getattr(own(), promise, plain) == plain, method
        again = subclass(kind, **{method: same(kind, method), promise: property(lambda self: promised)})
        assert getattr(again(), promise, plain) == promised
    assert getattr(subclass(kind)(), promise, plain) == promised, "nothing is overridden"
    assert getattr(subclass(kind, row_size=same(kind, "row_size"))(), promise, plain) == promised


def test_smoothing_may_be_zero():
    @dataclass(frozen=True)
    class Strict(KullbackLeibler):
        def __post_init__(self):
            if not self.smoothing > 0:
                raise ValueError("smoothing must be positive")

    with pytest.raises(ValueError, match="Strict has a field 'smoothing' that cannot be 0: smoothing must be positive"):
        ONMF(2, beta_loss=Strict()).fit(X)


def test_weights_may_be_normalised_when_the_object_is_made():
    @dataclass(frozen=True)
    class Shares(KullbackLeibler):
        v: tuple[float, ...] = ()

        def __post_init__(self):
            object.__setattr__(self, "v", tuple(np.array(self.v) / np.sum(self.v)))

    for seed in range(20):
        check_consistent(Shares(v=tuple(np.random.default_rng(seed).random(5))), 5)


def test_a_class_is_not_an_object():
    with pytest.raises(ValueError, match=r"SquaredDistance is a class: pass an object of it, SquaredDistance\("):
        ONMF(2, beta_loss=SquaredDistance).fit(X)


def test_a_field_cannot_have_the_name_of_a_method():
    with pytest.raises(TypeError, match="Own has a field 'weight', and Divergence a method: rename the field"):
        type("Own", (KullbackLeibler,), {"__annotations__": {"weight": "float"}})


CONTRADICTIONS = {
    "depend on the other centroids": (KullbackLeibler, {"templates": lambda self, C: np.log(C / C.sum() + 1e-3)}),
    "not a sum over clusters": (
        KullbackLeibler,
        {"objective": lambda self, S, mass, loss, constant: constant - S.max()},
    ),
    "do not suit centroids of any size": (Frobenius, {"templates": lambda self, C: C.copy()}),
    "a gain that falls while the score rises": (Frobenius, {"gain": lambda self, best, scale, terms: -best}),
    "gives scale of shape": (Frobenius, {"scale": lambda self, best, terms: np.ones(1)}),
    "gives weight that is not finite": (Frobenius, {"weight": lambda self, scale, terms: scale / 0.0}),
    "cannot compute with rows of 5 features: KeyError": (Frobenius, {"constant": lambda self, terms: terms["cube"]}),
    "promises fixed_weights": (Frobenius, {"fixed_weights": True}),
    "promises score_weights": (KullbackLeibler, {"score_weights": True}),
    "promises fixed_scales": (Cosine, {"fixed_scales": True}),
    "promises TemplateForm": (KullbackLeibler, {"template_form": TemplateForm(True, 0.5)}),
    "has moves, which need fixed_weights": (Frobenius, {"moves": KullbackLeibler.moves}),
    "has scale_rule='none', and a scale other than 1": (Frobenius, {"scale_rule": "none"}),
    "has scale_rule='length': use one of 'none', 'size', 'fit'": (Frobenius, {"scale_rule": "length"}),
    "has domain='counts': use one of": (Frobenius, {"domain": "counts"}),
    "scale='fit' multiplies centroids": (Bernoulli, {"scale_rule": "fit", "domain": "real"}),
    "and a size other than 1": (SquaredDistance, {"size": same(Frobenius, "size")}),
    "templates of NaN or ∞": (Cosine, {"templates": lambda self, C: self.normalise(C) / (C != 0)}),
    "gives scale of type list": (Frobenius, {"scale": lambda self, best, terms: list(best)}),
    "depend on the other rows": (Cosine, {"weight": lambda self, scale, terms: scale / scale.mean()}),
    "results depend on the other centroids": (Frobenius, {"centers": lambda self, S, mass: S - S.mean(axis=0)}),
    "has offsets of NaN or ∞": (
        Cosine,
        {"offsets": lambda self, C: np.log(self.normalise(C) ** 2 / (C != 0)).sum(axis=1)},
    ),
    "an objective of NaN": (
        Frobenius,
        {"objective": lambda self, S, mass, loss, constant: loss - float((S**2 / S).sum())},
    ),
    "results depend on the other rows": (
        Frobenius,
        {"constant": lambda self, terms: terms["square"] / terms["square"].max()},
    ),
    "has a row term 'features'": (Frobenius, {"row_terms": {"features": lambda x, j: x, "square": lambda x, j: x * x}}),
    "kernel_functions that are not its slope": (NegativeBinomial, {"kernel_functions": 2.0}),
    "overrides weight, but with scale_rule='size'": (NegativeBinomial, {"weight": same(NegativeBinomial, "weight")}),
    "slope is not the derivative of phi": (NegativeBinomial, {"slope": lambda self, x: np.log(x)}),
    "psi does not follow from phi": (Bernoulli, {"psi": lambda self, x: x}),
}


@pytest.mark.parametrize("message", CONTRADICTIONS)
@pytest.mark.parametrize("engine", ["cpu", "reference"])
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_a_class_that_contradicts_itself_is_refused(message, engine):
    kind, body = CONTRADICTIONS[message]
    rows = np.maximum(X > 2, X == 0) if kind is Bernoulli else X
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        ONMF(2, beta_loss=subclass(kind, **body)(), engine=engine).fit(rows)


def test_a_form_needs_sizes_that_no_entry_exceeds():
    body = {"size": lambda self, C: C.mean(axis=1), "template_form": TemplateForm(True, 1e-3)}
    with pytest.raises(ValueError, match=r"promises TemplateForm.*size are different"):
        ONMF(2, beta_loss=subclass(KullbackLeibler, **body)()).fit(X)


def test_row_terms_of_sparse_rows_are_zero_at_zero():
    terms = property(lambda self: {"square": lambda x, j: np.square(x - 1)})
    divergence = subclass(Frobenius, row_terms=terms)()
    ONMF(2, beta_loss=divergence).fit(X)
    with pytest.raises(ValueError, match="has a row term 'square' that is not 0 for x = 0"):
        ONMF(2, beta_loss=divergence).fit(csr_array(X))


def test_moves_follow_the_objective_in_a_diamond_too():
    one = subclass(KullbackLeibler, moves=KullbackLeibler.moves)
    other = subclass(KullbackLeibler, objective=same(KullbackLeibler, "objective"))
    assert type("Both", (one, other), {})().moves is None
    assert type("Both", (other, one), {})().moves is None
    assert type("Both", (one, subclass(KullbackLeibler)), {})().moves is not None


def test_phi_is_zero_at_zero():
    body = {"phi": lambda self, x: np.sqrt(1 + x * x), "slope": lambda self, x: x / np.sqrt(1 + x * x)}
    body |= {"curvature": lambda self, x: (1 + x * x) ** -1.5, "name": "soft", "domain": "nonnegative"}
    with pytest.raises(ValueError, match=r"phi\(0\) is not 0: subtract it"):
        ONMF(2, beta_loss=subclass(Convex, **body)()).fit(X)


def test_scales_that_are_all_one_are_scales():
    """A class that needs no scores is asked for scales all the same."""
    divergence = subclass(
        SquaredDistance,
        fixed_weights=True,
        fixed_scales=True,
        objective=lambda self, S, mass, loss, constant: constant - float((S**2 / np.maximum(mass, 1)[:, None]).sum()),
    )()
    expected = ONMF(3, beta_loss=SquaredDistance(), init=X[:3]).fit(X)
    for rows in (X, csr_array(X)):
        assert np.array_equal(ONMF(3, beta_loss=divergence, init=X[:3]).fit(rows).labels_, expected.labels_)


def test_what_is_kept_beside_the_fields_is_refused():
    class Own(KullbackLeibler):
        def __init__(self, v):
            super().__init__()
            object.__setattr__(self, "v", v)

    with pytest.raises(ValueError, match=r"Own keeps v beside its fields: decorate it with @dataclass"):
        ONMF(2, beta_loss=Own(1.0)).fit(X)


@pytest.mark.parametrize("name", ["sized", "absolute", "unit"])
def test_what_follows_from_the_scale_rule_cannot_be_overridden(name):
    with pytest.raises(TypeError, match=f"Own overrides {name!r}, which follows from scale_rule"):
        subclass(KullbackLeibler, **{name: True})


def test_theta_of_other_functions_cannot_be_estimated():
    with pytest.raises(ValueError, match="Doubled has functions of its own: give theta a number"):
        ONMF(2, beta_loss=Doubled("auto")).fit(X)
    with pytest.raises(ValueError, match="theta=-1"):
        Doubled(-1.0)


def test_fields_must_be_comparable():
    @dataclass(frozen=True)
    class Weighted(KullbackLeibler):
        v: object = None

    with pytest.raises(ValueError, match="Weighted cannot be copied, compared and made again from its fields"):
        ONMF(2, beta_loss=Weighted(v=np.ones(5))).fit(X)
    ONMF(2, beta_loss=Weighted(v=(1.0,) * 5)).fit(X)


def test_functions_of_numpy_may_be_wrong_only_once():
    class Wrong(Convex):
        name, domain, scale_rule = "wrong", "nonnegative", "fit"

        def phi(self, x):
            return x**1.5

        def slope(self, x):
            return 1.5 * np.sqrt(x)

        def curvature(self, x):
            return 0.7 / np.sqrt(x)

    with pytest.raises(ValueError, match="curvature is not the derivative of slope"):
        ONMF(2, beta_loss=Wrong()).fit(X)


@pytest.mark.parametrize("divergence", [Root("none"), Root("fit"), Doubled(), SquaredDistance()])
def test_a_sound_class_of_a_user_passes(divergence):
    check_consistent(divergence, 5)


def test_weights_of_features_weigh_features():
    """A weight of 0 leaves a feature out; equal weights are Kullback–Leibler."""
    rng = np.random.default_rng(3)
    noisy = np.hstack([X, rng.poisson(50.0, size=(30, 2))])
    options = {"init": X[:3] + 1, "smoothing": 1e-3}
    plain = ONMF(3, **options).fit(X)
    same_clusters = ONMF(3, beta_loss=WeightedKullbackLeibler((1.0,) * 5), **options).fit(X)
    assert same_clusters.reconstruction_err_ == pytest.approx(plain.reconstruction_err_, rel=0.05)
    start = np.hstack([X[:3] + 1, np.ones((3, 2))])
    left_out = ONMF(3, beta_loss=WeightedKullbackLeibler((1.0,) * 5 + (1e-9,) * 2), init=start).fit(noisy)
    assert np.array_equal(left_out.labels_, same_clusters.labels_)
