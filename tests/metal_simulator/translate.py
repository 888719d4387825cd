"""Translate a shader to C++: the same text, except for what C++ lacks. Each token keeps its line.

- `[[...]]` and `[[host_name]]` instantiations are left out. Function constants become variables.
- `float4(...)` becomes `msl::make<float4>(...)`: clang's vectors have no constructors.
- `threadgroup T name[n];` in a kernel becomes a reference to the threadgroup's memory.

For runs, one function for each kernel follows the text. It calls the kernel with the launch's arguments.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from metal_simulator.program import Function, FunctionConstant, Parameter, Program, outside_angles
from metal_simulator.tokens import LINE_MARKER, MSLError, Token, closing, closing_angle, is_attribute, split, text_of

SHIM = Path(__file__).parent / "shim"
VECTOR = re.compile(r"(?:float|half|bfloat|u?(?:char|short|int|long)|bool)[234]")
SPACES = {"device", "constant", "threadgroup", "thread"}

POSITIONS = {
    "thread_position_in_grid",
    "threadgroup_position_in_grid",
    "thread_position_in_threadgroup",
    "threads_per_threadgroup",
    "threadgroups_per_grid",
    "threads_per_grid",
    "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup",
    "thread_index_in_threadgroup",
    "simdgroups_per_threadgroup",
    "threads_per_simdgroup",
}
SAME_AS = {
    "thread_execution_width": "threads_per_simdgroup",
    "dispatch_simdgroups_per_threadgroup": "simdgroups_per_threadgroup",
    "dispatch_threads_per_threadgroup": "threads_per_threadgroup",
}


def position_of(parameter: Parameter) -> str | None:
    """Return the common name of a parameter's position attribute, or None."""
    names = (SAME_AS.get(name, name) for name in parameter.attributes)
    return next((name for name in names if name in POSITIONS), None)


def declares_threadgroup_variable(tokens: list[Token], index: int) -> list[Token] | None:
    """Return the declaration that begins with `threadgroup` at `index`, or None if it declares a pointer.

    The semicolon is not part of it.
    """
    previous = next((token.text for token in reversed(tokens[:index]) if token.kind != "directive"), ";")
    if previous not in (";", "{", "}") and previous != ")":
        return None
    end = next((i for i in range(index, len(tokens)) if tokens[i].text == ";"), None)
    if end is None:
        return None
    declaration = tokens[index:end]
    head = split(declaration, "=")[0]
    brackets = next((i for i, token in enumerate(head) if token.text in ("[", ",")), len(head))
    head = head[:brackets]
    if any(token.text in ("*", "&", "(") for token in outside_angles(head)):
        return None
    return declaration


class Translator:
    """Write a program's C++. With `check`, function constants and threadgroup memory are declared, not defined."""

    def __init__(self, program: Program, check: bool) -> None:
        self.program = program
        self.check = check
        self.kernel_bodies = {function.start: function for function in program.functions if function.is_kernel}
        self.kernel_end = -1
        self.variables = 0

    def text(self) -> str:
        body = "".join(self.pieces())
        tail = self.uses() if self.check else self.launchers()
        return f"#include <metal_stdlib>\n{body}\n{tail}"

    def pieces(self) -> Iterator[str]:
        tokens = self.program.tokens
        ranges = {start: (end, what) for (start, end), what in self.program.ranges.items()}
        index = 0
        while index < len(tokens):
            token = tokens[index]
            if index in self.kernel_bodies:
                self.kernel_end = index + len(self.kernel_bodies[index].body)
            end = index + 1
            if index in ranges:
                end, what = ranges[index]
                yield token.before + (self.function_constant(what) if isinstance(what, FunctionConstant) else "")
                yield self.lines(tokens[index:end])
            elif is_attribute(tokens, index):
                end = closing(tokens, index) + 1
                yield token.before + self.lines(tokens[index:end])
            elif VECTOR.fullmatch(token.text) and index + 1 < len(tokens) and tokens[index + 1].text == "(":
                yield f"{token.before}msl::make<{token.text}>"
            elif token.text == "threadgroup" and index < self.kernel_end:
                declaration = declares_threadgroup_variable(tokens, index)
                if declaration:
                    end = index + len(declaration) + 1
                    yield token.before + self.threadgroup_variables(declaration)
                    yield self.lines(declaration)
                else:
                    yield token.before + token.text
            elif token.kind == "directive":
                yield token.before + self.directive(token.text)
            else:
                yield token.before + token.text
            index = end

    def directive(self, text: str) -> str:
        """Write a line marker as #line, or keep a pragma. Leave out markers of the shim's files, and `#pragma once`."""
        marker = LINE_MARKER.match(text)
        if marker is None:
            return "" if re.match(r"\s*#\s*pragma\s+once", text) else text
        file = marker[2]
        if file is None or file.startswith("<") or file.startswith(str(SHIM)):
            return ""
        return f'#line {marker[1]} "{file}"'

    def lines(self, tokens: list[Token]) -> str:
        """Return the line ends of left-out tokens, so that later tokens keep their lines."""
        return "".join("\n" * token.before.count("\n") for token in tokens[1:])

    def function_constant(self, constant: FunctionConstant) -> str:
        if self.check:
            return f"extern constant {constant.type} {constant.name}, msl_defined_{constant.name};"
        return f"static {constant.type} {constant.name}; static bool msl_defined_{constant.name};"

    def threadgroup_variables(self, declaration: list[Token]) -> str:
        """Write `threadgroup float a[8], b` as references to memory."""
        first, *others = split(declaration)
        name = next(i for i in range(len(first)) if i + 1 == len(first) or first[i + 1].text == "[")
        kind = text_of(first[1:name])
        written = []
        for declarator in [first[name:], *others]:
            self.variables += 1
            dimensions = text_of(declarator[1:])
            type_ = f"{kind}{dimensions}"
            if self.check:
                memory = f"(threadgroup {kind} (*){dimensions})0"
            else:
                call = f'msl_threadgroup_memory({self.variables}, sizeof({type_}), alignof({kind}), "{declarator[0]}")'
                memory = f"static_cast<threadgroup {kind} (*){dimensions}>({call})"
            written.append(f"threadgroup {kind} (&{declarator[0]}){dimensions} = *{memory};")
        return " ".join(written)

    def uses(self) -> str:
        """Name each kernel, so that clang checks its instances."""
        return "\n".join(
            f"inline auto msl_use_{index}() {{ return &{expression}; }}"
            for index, (_, expression) in enumerate(self.program.kernels.values())
        )

    def launchers(self) -> str:
        parts = ['#line 1 "launchers"', "#include <msl/launch.h>", self.setter()]
        for index, (function, expression) in enumerate(self.program.kernels.values()):
            parts.append(self.launcher(index, function, expression))
        return "\n".join(parts) + "\n"

    def setter(self) -> str:
        """Write the function that sets a function constant by index. Null leaves it undefined."""
        cases = "".join(
            f"    case {c.index}: msl_defined_{c.name} = value != nullptr; "
            f"if (value) {c.name} = *static_cast<const {c.type} *>(value); return sizeof({c.type});\n"
            for c in self.program.function_constants.values()
        )
        return (
            'extern "C" size_t msl_set_function_constant(unsigned index, const void *value) {\n'
            f"    (void)value;\n    switch (index) {{\n{cases}    }}\n    return 0;\n}}"
        )

    def launcher(self, index: int, function: Function, expression: str) -> str:
        arguments, sizes = [], []
        for number, parameter in enumerate(function.parameters):
            kind = f"msl::parameter<{number}, msl_type_{index}>::type"
            buffer, memory = parameter.index_of("buffer"), parameter.index_of("threadgroup")
            position = position_of(parameter)
            if buffer is not None:
                arguments.append(f"msl::bound<{kind}>::get(b.launch->buffers[{buffer}])")
                sizes.append(f"    if (buffer == {buffer}) return msl::bound<{kind}>::least;")
            elif memory is not None:
                arguments.append(f"msl::bound<{kind}>::get(b.threadgroup_parameter({memory}))")
            elif position is not None:
                arguments.append(f"msl::as<msl::plain<{kind}>::type>(b.{position})")
            else:
                raise MSLError(f"{parameter.tokens[0].place}: the simulator has no value for {parameter.name}")
        return "\n".join(
            [
                f"typedef decltype({expression}) msl_type_{index};",
                f'extern "C" void msl_kernel_{index}(uint32_t thread) {{',
                "    const msl::builtins b(thread);",
                f"    {expression}({', '.join(arguments)});",
                "}",
                f'extern "C" size_t msl_least_bytes_{index}(unsigned buffer) {{',
                *sizes,
                "    return buffer & 0;",
                "}",
            ]
        )


def statement_starts(tokens: list[Token]) -> Iterator[int]:
    """Yield the indices in a body where a statement may begin."""
    for index in range(len(tokens)):
        previous = tokens[index - 1].text if index else ";"
        if previous in (";", "{", "}") or (previous == "(" and index > 1 and tokens[index - 2].text == "for"):
            yield index


def skip_type(tokens: list[Token], index: int) -> int:
    """Return the index after the type `const name::name<...>` at `index`, or `index` if there is none."""
    start = index
    while index < len(tokens) and tokens[index].text in ("const", "volatile"):
        index += 1
    if index >= len(tokens) or tokens[index].kind != "name":
        return start
    index += 1
    while index + 1 < len(tokens) and tokens[index].text == "::":
        index += 2
    if index < len(tokens) and tokens[index].text == "<":
        close = closing_angle(tokens, index)
        index = index if close is None else close + 1
    while index < len(tokens) and tokens[index].text in ("const", "volatile"):
        index += 1
    return index
