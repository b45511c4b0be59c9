"""The examples in all docstrings and in the README run."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lastmeter
from lastmeter import _lastmeter, cluster, element, media, network, program, sweeping
from lastmeter.media import captions, dispatcher, index, payload
from lastmeter.media import network as devices

PYTHON = Path(__file__).parent.parent


def documented() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every docstring of the package once, with the name of its owner and the names that it may use."""
    seen = set()
    modules: list[Any] = [
        *(lastmeter, network, program, sweeping, element, cluster, _lastmeter),
        *(media, captions, devices, dispatcher, index, payload),
    ]
    for module in modules:
        things = [(module.__name__, module)]
        for name, thing in vars(module).items():
            if str(getattr(thing, "__module__", "")).startswith("numpy"):
                continue  # A name for one of its types.
            things.append((name, thing))
            if inspect.isclass(thing):
                things += [(f"{name}.{part}", part_of) for part, part_of in vars(thing).items()]
        for name, thing in things:
            text = getattr(thing, "__doc__", None)
            if isinstance(text, str) and ">>>" in text and text not in seen:
                seen.add(text)
                space = dict(vars(module)) if module.__name__.startswith("lastmeter.media") else {}
                yield name, text, space


EXAMPLES = list(documented())


@pytest.mark.parametrize(("name", "text", "space"), EXAMPLES, ids=[name for name, _, _ in EXAMPLES])
def test_the_example_of(name: str, text: str, space: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(inspect.cleandoc(text), space, name, None, 0)
    found: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    runner.run(test, out=found.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(found)


def test_there_are_examples_of_both_languages() -> None:
    names = {name for name, _, _ in EXAMPLES}
    assert {"Experiment", "Graph", "Table", "Element", "sweep", "Experiment.what_if"} <= names


def test_the_examples_of_the_readme_run() -> None:
    text = (PYTHON / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    assert len(blocks) >= 2
    space: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), space)
    assert space["ledger"].verdict["resource"] is not None


def test_the_command_on_the_projects_first_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (PYTHON.parent / "README.md").read_text()
    [command] = re.findall(r"^python -c '(.*)'$", text, flags=re.M)
    exec(compile(command, "README.md", "exec"), {})
    shown = capsys.readouterr().out
    assert "7 runs of 7 points (grid)." in shown
    assert "Gbit/s" in shown


def test_the_python_of_the_pages_runs() -> None:
    pages = sorted((PYTHON.parent / "docs").glob("*.md"))
    blocks = [
        (page.name, block)
        for page in pages
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.S)
    ]
    assert blocks
    for name, block in blocks:
        exec(compile(block, name, "exec"), {})


def test_everything_public_is_documented() -> None:
    missing = []
    for name in lastmeter.__all__:
        thing = getattr(lastmeter, name)
        if not name.startswith("__") and not inspect.getdoc(thing):
            missing.append(name)
        if inspect.isclass(thing) and thing.__module__.startswith("lastmeter"):
            parts = [part for part in vars(thing) if not part.startswith("_")]
            missing += [f"{name}.{part}" for part in parts if not inspect.getdoc(getattr(thing, part))]
    allowed = {"Element.timers", "Problems.problems"}
    assert set(missing) <= allowed


def test_the_stub_matches_the_module() -> None:
    """Names and parameters in the stub are those of the module."""
    import ast

    tree = ast.parse((PYTHON / "lastmeter" / "_lastmeter.pyi").read_text())
    said = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    there = {name for name in vars(_lastmeter) if not name.startswith("_")}
    assert set(said) == there
    for name, node in said.items():
        if isinstance(node, ast.FunctionDef):
            assert parameters(node) == list(inspect.signature(getattr(_lastmeter, name)).parameters)
            continue
        thing = getattr(_lastmeter, name)
        if issubclass(thing, Exception):
            continue
        defined = {
            part.name: part for part in node.body if isinstance(part, ast.FunctionDef)
        } | {
            part.target.id: None
            for part in node.body
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
        }
        public = {part for part in vars(thing) if not part.startswith("_")}
        assert {part for part in defined if not part.startswith("_")} == public, name
        for part, function in defined.items():
            if function is None or part.startswith("__"):
                continue
            if any(isinstance(d, ast.Name) and d.id == "property" for d in function.decorator_list):
                continue
            found = inspect.signature(getattr(thing, part))
            assert parameters(function) == list(found.parameters), f"{name}.{part}"


def parameters(node: Any) -> list[str]:
    arguments = node.args
    names = [one.arg for one in [*arguments.posonlyargs, *arguments.args]]
    if arguments.vararg:
        names.append(arguments.vararg.arg)
    return names + [one.arg for one in arguments.kwonlyargs]
