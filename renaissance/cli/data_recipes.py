"""Transforms by a recipe's name or from a line of text."""

from __future__ import annotations

import ast
from typing import NamedTuple

from renaissance import data
from renaissance.core.errors import fail
from renaissance.data import Normalization, Transform


class Recipe(NamedTuple):
    """Transforms of the training samples, and the normalisation that ends them."""

    transforms: tuple[Transform, ...]
    normalization: Normalization


RECIPES: dict[str, Recipe] = {
    "none": Recipe((), data.NO_NORM),
    "mnist": Recipe(
        (
            data.Pad(2),
            data.RandomCrop(28),
            data.RandomRotation(20),
            data.RandomScale(0.8, 1.2),
            data.RandomErasing(0.5),
        ),
        data.MNIST,
    ),
    "cifar": Recipe((data.Pad(4), data.RandomCrop(32), data.RandomHorizontalFlip()), data.CIFAR),
    "imagenet": Recipe(
        (data.FastRandomResizedCrop(224), data.RandomHorizontalFlip()), data.IMAGENET
    ),
}

NAMES = {
    name: value
    for name, value in vars(data).items()
    if isinstance(value, type) and issubclass(value, Transform) and value is not Transform
}


def parse_transforms(text: str) -> tuple[Transform, ...]:
    """Read transforms as their ``repr`` or by hand: ``"Pad(4) RandomCrop(32)"``; commas may stand.

    Only names of transforms and literal arguments are understood; nothing is evaluated.

    Raises:
        ValueError: Anything else.
    """
    try:
        calls = split_calls(ast.parse(f"[{separated(text)}]", mode="eval").body)
        return tuple(make(call) for call in calls)
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"--transforms {text!r}: {error}") from error


def separated(text: str) -> str:
    """A comma between neighbouring calls."""
    pieces, depth = [], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        pieces.append(character)
        if character == ")" and depth == 0:
            pieces.append(",")
    return "".join(pieces).replace(",,", ",").replace(", ,", ",")


def split_calls(tree: ast.expr) -> list[ast.expr]:
    """The elements of the list."""
    return list(tree.elts) if isinstance(tree, ast.List) else [tree]


def make(call: ast.expr) -> Transform:
    """One transform from its call."""
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
        fail(ValueError, "item", ast.unparse(call), "a call such as RandomCrop(32)")
    if call.func.id not in NAMES:
        fail(ValueError, "transform", call.func.id, f"one of {', '.join(sorted(NAMES))}")
    arguments = [ast.literal_eval(value) for value in call.args]
    named = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg is not None}
    try:
        return NAMES[call.func.id](*arguments, **named)
    except TypeError as error:
        raise ValueError(str(error)) from error
