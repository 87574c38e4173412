"""The flags by which engines may be asked: off by default, and never together with --read-only."""

from __future__ import annotations

import pytest

from gpuctl.cli.asking import Asking, not_asked
from gpuctl.cli.border import Stop
from gpuctl.cluster.consent import Consent
from gpuctl.facts.fact import Pages, Runs


def test_nothing_is_asked_by_default() -> None:
    given = Asking(http=False, exec=False).added_to(Consent(), read_only=True)
    assert (given.vllm_http, given.vllm_exec) == (False, False)
    assert (Consent().vllm_http, Consent().vllm_exec) == (False, False)


def test_each_flag_agrees_to_one_way() -> None:
    assert Asking(http=True, exec=False).added_to(Consent()) == Consent(vllm_http=True)
    assert Asking(http=False, exec=True).added_to(Consent()) == Consent(vllm_exec=True)


@pytest.mark.parametrize(
    ("asking", "named"),
    [(Asking(http=True, exec=False), "--vllm-http"), (Asking(http=False, exec=True), "--vllm-exec")],
)
def test_reading_alone_asks_nobody(asking: Asking, named: str) -> None:
    with pytest.raises(Stop, match=named):
        asking.added_to(Consent(), read_only=True)


def test_what_is_not_asked_needs_no_permission() -> None:
    assert not_asked(http=False, exec_=False) == (Pages, Runs)
    assert not_asked(http=True, exec_=False) == (Runs,)
    assert not_asked(http=True, exec_=True) == ()
