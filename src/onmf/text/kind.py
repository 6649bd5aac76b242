"""Cluster documents by their words, and assign new documents to the clusters: documents as a kind of data."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from onmf import old_names
from onmf.data import Blocks, in_blocks
from onmf.datasets import Shards
from onmf.datasets.count import make_vectorizer
from onmf.divergence import Array, FloatArray
from onmf.door import Clusters, Kind, Option, Progress, Table, check_request, cluster_table, predict_table
from onmf.door.find import features_of_words, words_of
from onmf.door.kind import KNOWN, SEEDS, Rows
from onmf.door.known import columns_of_seeds
from onmf.door.run import check_kind
from onmf.door.votes import Views
from onmf.estimator import ONMF, check_for_parts
from onmf.io.limits import read_small
from onmf.io.rules import FLAG, Rule, json_object, number, optional, require, strings
from onmf.select import Range

from .consensus import VIEWS, consensus_of_views, independent_runs, rule_of_bursts
from .files import STRIP, Text, Texts, read
from .words import LONGEST_NGRAM, VECTORIZER, Documents, count, vectorizer_of, vectorizer_options


def parse_frequency(value: str) -> int | float:
    """Parse ``--min-df`` or ``--max-df``: a number of documents, or with a decimal point a share of them."""
    is_share = "." in value
    try:
        number = float(value) if is_share else int(value)
    except ValueError as error:
        raise ValueError("is not a number.") from error
    require(
        not is_share or 0 <= number <= 1, "a number with a decimal point is a share of the documents, from 0.0 to 1.0."
    )
    require(is_share or number >= 1, "use a whole number of documents, at least 1, or a share such as 0.01.")
    return number


def parse_ngrams(value: str) -> tuple[int, int]:
    """Parse ``--ngrams``: the shortest and the longest n-gram."""
    first, _, last = value.partition("-")
    last = last or first
    if not first.isdecimal() or not last.isdecimal() or (not 1 <= int(first) <= int(last)):
        raise ValueError("is not a range: use 1-2 for single words and pairs of words.")
    require(int(last) <= LONGEST_NGRAM, f"an n-gram has at most {LONGEST_NGRAM} words or letters.")
    return int(first), int(last)


def parse_pattern(value: str) -> str:
    """Parse ``--token-pattern``: a regular expression."""
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}.") from error
    return value


def parse_stop_words(path: Path) -> list[str]:
    """Parse ``--stop-words``: a file with words."""
    try:
        return read_small(path, 16, "name a file with one stop word per line").split()
    except UnicodeDecodeError as error:
        raise ValueError("is not a text file in UTF-8.") from error


SOURCE = partial(Option, reading=True)
COLUMN = partial(SOURCE, metavar="COLUMN")
WORDS = partial(Option, reading=True, group="Words")
FREQUENCY = partial(WORDS, metavar="NUMBER", parse=parse_frequency)

OPTIONS = (
    COLUMN("text", "Column of a table that holds the text."),
    COLUMN("id", "Column of a table that names the documents."),
    SOURCE(
        "labels",
        "Compare the clusters with known classes: the folder of each file, or a column of a table.",
        metavar="folder|COLUMN",
    ),
    SOURCE(
        "groups",
        "The source, author or year of each document: the folder of each file, or a column of a table. Clusters then "
        "do not follow it.",
        metavar="folder|COLUMN",
        flags=("--group",),
    ),
    KNOWN,
    COLUMN("date", "Table column with the dates: how clusters and words rise and fall over time."),
    SOURCE(
        "input",
        "Format of PATH, if its name does not show it: csv, tsv, json, jsonl or lines (one document per line).",
        metavar="KIND",
    ),
    SOURCE("strip", "Leave out the headers of mail and news.", list[str] | None, None, "headers", choices=tuple(STRIP)),
    SOURCE(
        "keep_attachments", "Keep encoded attachments (uuencode, base64), which are dropped by default.", bool, False
    ),
    SOURCE(
        "shards",
        "For a corpus larger than memory: store its counts in this folder, in pieces, and fit from there.",
        Path | None,
        metavar="DIR",
    ),
    SEEDS,
    WORDS("language", "Language of the stop words to remove; 'none' keeps all words.", str, "english", "NAME"),
    WORDS(
        "stop_words", "More stop words to remove, one per line.", Path | None, metavar="FILE", parse=parse_stop_words
    ),
    FREQUENCY(
        "min_df",
        "Remove words that occur in fewer documents than this (with a decimal point: in a smaller share). By default 1 "
        "to 5, depending on the size of the corpus.",
    ),
    FREQUENCY("max_df", "Remove words that occur in more documents than this, given like --min-df.", str, "1.0"),
    WORDS("max_features", "Keep only this many words, the most frequent ones.", int | None, metavar="NUMBER", least=1),
    WORDS(
        "ngrams",
        "Lengths of the n-grams to count: 1-2 for words and pairs of words.",
        *(str, "1-1", "FROM-TO"),
        parse=parse_ngrams,
    ),
    WORDS(
        "token_pattern",
        "Regular expression of a word; two or more letters by default. For onmf predict: the model's, if it is more "
        "than a run of one kind of character, since such a pattern from a file is not trusted.",
        metavar="REGEX",
        parse=parse_pattern,
    ),
    WORDS(
        "analyzer",
        "What to count: words, or runs of characters across words (char) or within words (char_wb).",
        *(str, "word", "word|char|char_wb"),
    ),
    WORDS(
        "lowercase",
        "Convert words to lower case, or keep capital letters.",
        *(bool, True),
        flags=("--lowercase/--keep-case",),
    ),
    WORDS("strip_accents", "Remove accents from letters: é becomes e.", metavar="ascii|unicode"),
    WORDS("binary", "Count each word at most once per document.", bool, False),
)

BURSTS = Rule(
    lambda value: isinstance(value, list) and len(value) == 2 and all(number(1e-9, 1e9).fits(each) for each in value),
    "two positive numbers",
)

COUNTING = ("token_pattern", "min_df", "max_df", "max_features", "analyzer", "lowercase", "strip_accents", "binary")
"""Options that are parameters of the vectorizer under the same name."""


@dataclass(repr=False, eq=False)
class DocumentClusters(Clusters):
    """Clusters of documents; see :class:`onmf.door.Clusters`. Its rows are documents, its features words."""

    table: Documents

    def __post_init__(self) -> None:
        self.notes = old_names.Notes(self.notes)

    @property
    def words(self) -> Array:
        """The words that are counted."""
        return np.asarray(self.table.features)

    def predict(self, texts: Any, /, **options: Any) -> "DocumentClusters":
        """Assign other documents to these clusters; see :func:`onmf.text.predict`."""
        return predict(self, texts, **options)

    def update(self, texts: Any, /, *, token_pattern: str | None = None, **options: Any) -> "DocumentClusters":
        """Assign other documents, find new clusters among them, and learn; see :func:`onmf.door.update_table`.

        ``texts`` and ``token_pattern`` are as in :func:`onmf.text.predict`.
        """
        counted = counted_for(self.model, texts, token_pattern, options.get("progress"))
        return cast(DocumentClusters, super().update(counted, **options))

    def typical(self, cluster: int, n: int = 5) -> Array:
        """The documents of a cluster with the largest margins; the shorter half, decided by few words, is left out."""
        return self._longer(cluster, 0.5)[::-1][:n]

    def doubtful(self, cluster: int, n: int = 5) -> Array:
        """The documents of a cluster with the smallest margins; the shortest quarter is left out."""
        return self._longer(cluster, 0.25)[:n]

    def _longer(self, cluster: int, shorter: float) -> Array:
        inside = self._by_margin(cluster)
        lengths = np.asarray(self.table.lengths)[inside]
        return inside[lengths >= np.quantile(lengths, shorter)] if len(inside) else inside


class DocumentKind(Kind):
    """Documents: rows of word counts."""

    name = command = "documents"
    about = "Cluster documents by their words."
    examples = (
        "onmf documents letters/ -k 12 --out clusters",
        "onmf documents mail.tar.xz -k 20 --strip headers --labels folder --out clusters",
        "onmf documents reviews.csv --text body --id number -k auto --out clusters",
        "onmf documents mail/ -k 20 --seeds seeds.json --out clusters",
        "zcat lines.gz | onmf documents - -k 5",
        "onmf documents huge.jsonl.zst -k 50 --shards counts --out clusters",
    )
    argument_help = "A folder, zip, tar, csv, tsv, json, jsonl, parquet or text file; - for standard input."
    row, feature = "document", "word"
    first = 1
    options = OPTIONS
    not_in_predict = ("date", "shards", "language", "stop_words", "ngrams", *COUNTING[1:])
    views = Views(VIEWS, "words", consensus_of_views, independent_runs)
    result = DocumentClusters

    def rules(self, k: int, p: int) -> dict[str, Rule]:
        return super().rules(k, p) | {
            "vocabulary": strings(p, distinct=True),
            "bursts": optional(BURSTS),
            "vectorizer": VECTORIZER,
            # The only entries of "source" that are read from a file; the others are for people.
            "source": optional(json_object({"strip": optional(strings()), "keep_attachments": optional(FLAG)})),
        }

    def feature_names(self, extra: Mapping[str, Any]) -> list[str]:
        return extra["vocabulary"]

    def entries(self, clusters: Any) -> dict[str, Any]:
        table: Documents = clusters.table
        bursts = getattr(clusters.model, "extra_", {}).get("bursts")
        return {
            **({} if bursts is None else {"bursts": bursts}),
            "vocabulary": [str(word) for word in table.features],
            "vectorizer": vectorizer_options(table.vectorizer),
            "source": {"name": table.source, "strip": list(table.strip), "keep_attachments": table.keep_attachments},
        }

    def rule(self, model: ONMF) -> Callable[[Any], FloatArray] | None:
        return rule_of_bursts(model)

    def check_options(
        self, options: Mapping[str, Any], out: Path | None, n_clusters: int | str, parameters: Mapping[str, Any]
    ) -> None:
        shards = options["shards"]
        if shards is None:
            return
        require(
            not options.get("no_text"),
            "--shards keeps the names and the beginnings of documents in its folder: leave out --no-text, or --shards.",
        )
        check_for_parts(parameters.get("refine"), parameters.get("init", "snpa"))
        in_blocks(parameters.get("engine", "auto"), parameters.get("n_threads"))  # refuses an unsuitable engine
        if out is not None:
            one, other = shards.resolve(), out.resolve()
            require(
                not one.is_relative_to(other) and (not other.is_relative_to(one)),
                f"--shards {shards} and --out {out}: one folder contains the other. Use two separate folders.",
            )

    def read(self, path: str | Path, progress: Progress, *, force: bool = False, **options: Any) -> Documents:
        words = {name: options[name] for name in COUNTING if options[name] is not None}
        words["ngram_range"] = options["ngrams"]
        if options["analyzer"] != "word":
            words |= {"token_pattern": None, "stop_words": None}
        elif options["stop_words"] is not None:
            known = make_vectorizer(options["language"]).stop_words or ()
            words["stop_words"] = sorted({*known, *(word.lower() for word in options["stop_words"])})
        return count(
            self._texts(path, progress, options),
            make_vectorizer(options["language"], **words),
            automatic=options["min_df"] is None,
            shards=options["shards"],
            force=force and options["shards"] is not None,
            progress=progress,
        )

    def read_new(self, model: ONMF, path: str | Path, progress: Progress, **options: Any) -> Documents:
        vectorizer = vectorizer_of(model, options["token_pattern"])  # refused before any document is read
        given = reading_of(model) | {name: value for name, value in options.items() if value not in (None, False, [])}
        table = count(self._texts(path, progress, given), vectorizer, progress=progress)
        if not len(table.rows):
            raise ValueError(" ".join([f"{path} contains no documents.", *table.notes]))
        return table

    def _texts(self, path: str | Path, progress: Progress, options: Mapping[str, Any]) -> Texts:
        names = ("text", "id", "labels", "date", "groups", "known", "strip", "keep_attachments")
        given = {name: options[name] for name in names if options.get(name) is not None}
        texts = read(path, kind=options.get("input"), **given)
        texts.watch = lambda n, share: progress(f"Reading and counting: {n:,} documents", share)
        return texts

    def prepare(self, table: Table, parameters: dict[str, Any], progress: Progress, **options: Any) -> Rows:
        assert isinstance(table, Documents)
        notes = self.unassigned(table, np.flatnonzero(table.lengths == 0), "a usable word")
        rows = Rows(table.used, table.filled, notes)
        if isinstance(table.X, Shards):
            engine = parameters.get("engine", "auto")
            own = isinstance(engine, Blocks)  # and so has its own progress
            rows.engine = in_blocks(engine, parameters.get("n_threads"), None if own else progress)
            rows.X = replace(table.X, names=None)  # names of shards are for people
        return rows

    def seeds_in(
        self, table: Table, rows: Rows, seeds: Mapping[str, Any]
    ) -> tuple[dict[str, dict[Any, float]], list[str]]:
        assert isinstance(table, Documents)
        places, as_counted = {word: j for j, word in enumerate(table.features)}, table.vectorizer.build_preprocessor()
        return columns_of_seeds(self, rows, seeds, lambda word: places.get(word, places.get(as_counted(word))))

    def terms(self, query: str, model: ONMF, table: Table | None) -> dict[str, list[int]]:
        if isinstance(table, Documents):
            vectorizer = table.vectorizer
        else:  # a query is short, and the user's own: no pattern takes long on it
            vectorizer = vectorizer_of(model, model.extra_["vectorizer"].get("token_pattern"))
        words = vectorizer.build_analyzer()(query)
        if not words:  # such as stop words
            return {word: [] for word in words_of(query)}
        found = features_of_words(query, words, self.namings_of(model.extra_))
        known = {word for word, places in found.items() if places}
        single = vectorizer.analyzer == "word" and vectorizer.ngram_range[0] == 1
        # Of n-grams that are unknown, only the words matter.
        kept = {word: places for word, places in found.items() if places or (" " not in word if single else not known)}
        return kept or {query: []}

    def text_of(self, clusters: Any, row: int) -> str:
        excerpts = clusters.table.excerpts
        return cast(str, excerpts[row]) if len(excerpts) else super().text_of(clusters, row)

    def cluster_columns(self, clusters: Any) -> dict[str, Any]:
        return super().cluster_columns(clusters) | {"frequent": [", ".join(words) for words in clusters.frequent(10)]}


DOCUMENTS = DocumentKind()


def reading_of(model: ONMF) -> dict[str, Any]:
    """Options for :func:`read` that read new documents as those of the model were read."""
    source = model.extra_.get("source", {})
    dropped = [name for name in source.get("strip", []) if name in STRIP]
    return {"strip": dropped, "keep_attachments": source.get("keep_attachments", False)}


def cluster(
    texts: Iterable[Text | str] | Documents,
    n_clusters: int | str = 8,
    *,
    k_min: int | None = None,
    k_max: int | None = None,
    vectorizer: CountVectorizer | None = None,
    automatic: bool | None = None,
    shards: str | os.PathLike[str] | None = None,
    force: bool = False,
    quick: bool = False,
    announce: Callable[[str], None] | None = None,
    progress: Progress | None = None,
    **parameters: Any,
) -> DocumentClusters:
    """Cluster documents by their words.

    Parameters
    ----------
    texts : iterable of Text or str, or Documents
        Documents, for instance from :func:`read`. They are read once and not kept. Or their counts, from
        :func:`count`.
    n_clusters : int, "auto", "coarse" or "fine", default=8
        Number of clusters. :func:`onmf.select_n_clusters` finds up to three levels: ``"auto"`` takes the medium one.
    k_min, k_max
        As in :func:`onmf.select_n_clusters`.
    vectorizer, automatic, shards, force
        As in :func:`count`. With ``shards``, the fit reads one shard at a time, and the clusters are the same;
        ``refine`` and ``init="consensus"`` need all counts in memory.
    quick : bool, default=False
        Whether to run once, from the paper's start. By default, the size of the corpus decides: 24 runs in three views
        of the words vote on the clusters (see :func:`consensus_of_views`), fewer for a large corpus, and one run with a
        local search for a very large one. Divergences without a local search and counts in shards get one run from the
        paper's start. ``init``, ``n_init`` or ``refine`` replaces all this, ``n_consensus`` the number of runs.
    announce : callable, optional
        Called before the fit with a sentence that says what it does.
    progress : callable, optional
        Called with the name of each step and the share of it that is done, None if that is not known.
    **parameters
        Parameters of :class:`onmf.ONMF`, such as ``random_state`` (0 by default), and of
        :func:`onmf.door.cluster_table`, such as ``namer``, ``seeds`` or ``known``.

    Returns
    -------
    DocumentClusters

    Examples
    --------
    >>> import onmf.text
    >>> texts = ["red tea green tea", "tea tea", "cow milk", "milk of a cow", "black tea", "fresh milk"]
    >>> result = onmf.text.cluster(texts, 2)
    >>> result.labels.tolist()
    [0, 0, 1, 1, 0, 1]
    >>> [list(words) for words in result.distinctive(1)]
    [['tea'], ['milk']]
    """
    check_request(DOCUMENTS, n_clusters, Range(k_min, k_max), parameters)
    DOCUMENTS.check_options({"shards": shards}, None, n_clusters, parameters)
    if not isinstance(texts, Documents):
        if progress is not None:
            progress("Counting words", None)
        texts = count(texts, vectorizer, automatic=automatic, shards=shards, force=force, progress=progress)
    parameters |= {"announce": announce, "progress": progress} | ({"quick": True} if quick else {})
    found = cluster_table(DOCUMENTS, texts, n_clusters, k_min=k_min, k_max=k_max, **parameters)
    return cast(DocumentClusters, found)


def predict(
    model: ONMF | DocumentClusters,
    texts: Iterable[Text | str] | Documents,
    *,
    token_pattern: str | None = None,
    **options: Any,
) -> DocumentClusters:
    """Assign documents to the clusters of a document model.

    Parameters
    ----------
    model : ONMF or DocumentClusters
        The result of :func:`cluster`, or the model that it saved, as :func:`onmf.load` reads it.
    texts : iterable of Text or str, or Documents
        Documents. Headers and the like must be dropped as they were for the model. Or their counts, from
        :func:`count`: words are matched by name.
    token_pattern : str, optional
        The token pattern of the model. It is required if the pattern is more than a run of one kind of character. Such
        a pattern can take exponential time on some texts, so one from a file is not used without your consent.
    **options
        Of :func:`onmf.door.predict_table`, such as ``unassigned``, ``estimate_groups`` or ``progress``.

    Returns
    -------
    DocumentClusters
        Documents that have none of the model's words are unassigned.
    """
    fitted = model.model if isinstance(model, DocumentClusters) else model
    check_kind(fitted, DOCUMENTS)
    counted = counted_for(fitted, texts, token_pattern, options.get("progress"))
    return cast(DocumentClusters, predict_table(fitted, counted, kind=DOCUMENTS, **options))


def counted_for(model: ONMF, texts: Any, token_pattern: str | None, progress: Progress | None) -> Documents:
    """Documents, counted as those of a model unless they are counted already."""
    if isinstance(texts, Documents):
        return texts
    return count(texts, vectorizer_of(model, token_pattern), progress=progress)
