"""The user's own environment, whatever was added on the way to the process that measures."""

from __future__ import annotations

import os

from perfsweep.workloads.user_environment import INTERPRETER, NOTE, at_start, changed, user_environment

OWN = {"PATH": "/bin", "PYTHONPATH": "/mine"}


def test_what_was_added_is_taken_away_and_what_was_replaced_comes_back() -> None:
    measuring = {**OWN, **changed(OWN, {"PYTHONPATH": "/snapshot:/mine", "OMP_NUM_THREADS": "1"})}
    assert measuring["OMP_NUM_THREADS"] == "1"
    assert user_environment(measuring) == OWN


def test_the_first_value_is_the_users_however_often_it_is_changed() -> None:
    once = {**OWN, **changed(OWN, {"PYTHONPATH": "/snapshot"})}
    twice = {**once, **changed(once, {"PYTHONPATH": "/other", "PYTHONHASHSEED": "7"})}
    assert user_environment(twice) == OWN


def test_an_environment_that_nobody_changed_is_the_users() -> None:
    assert user_environment(OWN) == OWN


def test_values_that_are_only_passed_on_are_not_written_into_the_note() -> None:
    assert "secret" not in changed({"TOKEN": "secret"}, {"A": "1"})[NOTE]


def test_a_locale_that_python_coerced_is_not_the_users() -> None:
    assert "LC_CTYPE" not in at_start() or os.environ["LC_CTYPE"] == at_start()["LC_CTYPE"]
    coerced = {**OWN, "LC_CTYPE": "C.UTF-8"}
    own = {**OWN} if "LC_CTYPE" not in at_start() else coerced
    assert user_environment({**coerced, **changed(coerced, {"A": "1"})}) == own


def test_what_libraries_set_after_the_start_is_not_there(monkeypatch) -> None:
    monkeypatch.setenv("SET_BY_A_LIBRARY", "1")
    assert "SET_BY_A_LIBRARY" not in at_start()
    assert at_start()["PATH"]


def test_a_program_in_another_environment_finds_what_is_installed_there() -> None:
    start = {INTERPRETER: "/env/bin/python", "PATH": "/env/bin:/bin", "PYTHONPATH": "/snapshot"}
    measuring = {**OWN, **changed(OWN, start)}
    assert user_environment(measuring) == {**OWN, "PATH": "/env/bin:/bin"}
