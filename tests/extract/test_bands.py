"""Which kernels are chosen to run together: those between which much would pass through memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from image_programs import Images
from kernel_cases import leaf

from frittata.egraph import archive
from frittata.egraph.bands import Finder, line_of
from frittata.egraph.machine import REFERENCE, Machine
from frittata.egraph.places import find_places, placed_bodies
from frittata.egraph.program import Band, Kernel, Output, Program, Template
from frittata.extract.bands import choose_bands
from frittata.kernels import templates


class Apart:
    """A template whose kernels neither read nor write in place."""

    def __init__(self, template: Template) -> None:
        self.name, self.estimate = template.name, template.estimate


def priced(program: Program, machine: Machine) -> Program:
    """Give the kernels of a program the prices of their templates."""
    places, constants = find_places(program), frozenset(program.constants)

    def again(kernel: Kernel) -> Kernel:
        estimate = templates.by_name(kernel.template).estimate(placed_bodies(kernel, places), constants, machine)
        assert estimate is not None
        return replace(kernel, estimate=estimate)

    return replace(program, steps=tuple(again(s) if isinstance(s, Kernel) else s for s in program.steps))


def chosen(images: Images, machine: Machine = REFERENCE) -> tuple[Band, ...]:
    """Choose the bands of a program."""
    return choose_bands(priced(images.program(), machine), templates.TEMPLATES, machine)


def expanded(size: int, inner: int = 16, outer: int = 96) -> Images:
    return Images((1, size, size, inner)).product(outer).padded(1).windows(stride=2).product(inner)


def test_large_images_run_in_bands() -> None:
    (band,) = chosen(expanded(112))
    assert len(band.kernels) == 3
    assert band.parts >= REFERENCE.threads


def test_what_stays_in_the_caches_does_not() -> None:
    assert not chosen(expanded(14))
    assert not chosen(expanded(112), replace(REFERENCE, l2_bytes=64 << 20))


def test_targets_that_do_not_write_in_place_have_none() -> None:
    program = expanded(112).program()
    kernels = templates.select("fast", library=True)
    named = [Apart(template) for template in kernels]
    assert choose_bands(priced(program, REFERENCE), kernels, REFERENCE)
    assert not choose_bands(priced(program, REFERENCE), named, REFERENCE)


def test_large_weights_are_not_read_for_every_line() -> None:
    assert not chosen(expanded(28, 256, 2048))


def test_halos_are_computed_twice_only_where_they_are_small() -> None:
    """Of 16 lines, windows of 15 lines would have each part compute nearly all."""
    few = Images((1, 30, 256, 8)).product(64).windows(kernel=15)
    assert not chosen(few, replace(REFERENCE, threads=8))


def test_bands_are_part_of_what_is_remembered() -> None:
    program = Program({}, {}, (), (), bands=(Band(("a", "b"), 4),))
    assert archive.from_bytes(archive.to_bytes(program)) == program


@pytest.mark.parametrize("images", [1, 3])
def test_lines_of_windows(images: int) -> None:
    """Line y of windows of 3 lines, two apart, reads lines 2 y to 2 y + 2 of the border and what is in it."""
    program = Images((images, 9, 5, 4)).product(6).padded(1).windows(stride=2).program()
    places = find_places(program)
    product, windows = program.kernels
    (written,) = placed_bodies(product, places)
    line = line_of(written, "out")
    assert line is not None
    assert (line.images, line.count, line.body.shape) == (images, 9, (1, 1, 5, 6))
    assert (line.writes.step, line.writes.length) == (7 * 6, 5 * 6)
    finder = Finder(program, places)
    read = finder.line(windows)
    stages = finder.stages([product.name, windows.name])
    assert read is not None
    assert stages is not None
    (span,) = (span for span in read.reads.values() if span.step)
    assert (span.start, span.step, span.length) == (0, 2 * 7 * 6, 3 * 7 * 6)
    assert span.image == (11 * 7 * 6 if images > 1 else 0)
    assert stages.needed(1, 0, 1) == (0, 3)
    assert stages.needed(1, 1, 5) == (2, 11)
    assert stages.computed(0, 5) == [9, 5]
    assert stages.computed(1, 3) == [5, 2]


def test_of_lines_of_a_border_none_are_computed() -> None:
    program = Images((1, 9, 5, 4)).product(6).padded(8).windows().program()
    stages = Finder(program, find_places(program)).stages([kernel.name for kernel in program.kernels])
    assert stages is not None
    assert [stages.computed(y, y + 1) for y in (0, 6, 11, 16, 22)] == [[0, 1], [1, 1], [3, 1], [1, 1], [0, 1]]


def test_only_what_one_kernel_alone_writes_for_one_other_is_handed_on() -> None:
    program = Images((1, 9, 5, 4)).product(6).windows().program()
    first, second = program.kernels
    (written,), (read,) = first.outputs, second.outputs
    more = Output("more", read.body)

    def handed(found: Program) -> str | None:
        return Finder(found, find_places(found)).handed_on(*found.kernels[:2])

    assert handed(program) == written.name
    assert handed(replace(program, outputs=(*program.outputs, written.name))) is None
    others = replace(second, name="more", outputs=(more,)), replace(first, name="more")
    assert [handed(replace(program, steps=(*program.steps, other))) for other in others] == [None, None]
    assert handed(replace(program, steps=(replace(first, outputs=(written, more)), second))) is None


def test_constants_have_no_lines() -> None:
    program = Images((1, 9, 5, 4)).product(6).windows().program()
    first, second = program.kernels
    image, weights = first.operands
    constant = replace(program, inputs={}, constants={**program.constants, image: leaf(image, 1, 9, 5, 4)})
    usual, known = (Finder(each, find_places(each)) for each in (program, constant))
    assert usual.constant_bytes(first) == usual.size_bytes(weights) == 4 * 4 * 6
    assert usual.line(first) is not None and known.line(second) is not None
    assert known.line(first) is None and known.stages([first.name, second.name]) is None
