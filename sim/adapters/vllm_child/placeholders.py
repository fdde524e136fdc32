"""Objects in the place of those that a whole server has: a text-only model, encoded items, a grammar, a connector."""

from __future__ import annotations


class Lenient:
    """Answers False to whatever it was not told: a text-only decoder, without anything special."""

    def __init__(self, **values):
        self.__dict__.update(values)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return False


class Span:
    """An encoded item's place in a prompt."""

    def __init__(self, offset, length):
        self.offset, self.length = offset, length

    def get_num_embeds(self):
        return self.length

    def get_embeds_indices_in_range(self, start, end):
        return start, end


def features(items):
    """A request's encoded items, as a scheduler and a block hasher read them."""
    return [
        Lenient(identifier=key, mm_hash=key, modality="image", data=None, mm_position=Span(start, length))
        for start, length, key in items
    ]


def features_in_window(features, start, end):
    """Stand-in for the release's helper, which lies in a package that is stood in for."""
    spans = [feature.mm_position for feature in features]
    return sum(s.offset + s.length <= start for s in spans), sum(s.offset < end for s in spans)


class Grammar:
    """A structured-output manager that nobody uses."""

    def accept_tokens(self, *args, **kwargs):
        return True

    def should_advance(self, *args, **kwargs):
        return False

    def validate_tokens(self, request, tokens):
        return tokens

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


class Connector:
    """Says which requests bring tokens that somebody else computed; the load itself is over at once."""

    supports_divergent_local_hybrid_hits = False  # as vLLM's base class says since 0.28, and its OffloadingConnector

    def __init__(self):
        self.external = {}

    def get_num_new_matched_tokens(self, request, computed):
        """(tokens beyond those computed, whether they arrive later); at least one token is left to run."""
        wanted = min(self.external.get(request.request_id, 0), request.num_tokens - 1)
        return max(wanted - computed, 0), False

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None
