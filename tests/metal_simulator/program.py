"""Read a shader's declarations: functions, kernels and their parameters, records, variables, function constants."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from metal_simulator.tokens import OPENING, MSLError, Token, closing, closing_angle, split, text_of, without_attributes

RECORDS = {"struct", "class", "union", "enum"}


@dataclass
class Parameter:
    """A parameter: its declaration without attributes and default value, and its attributes."""

    tokens: list[Token]
    attributes: dict[str, list[Token]]
    has_default: bool

    @property
    def name(self) -> str:
        names = [token.text for token in self.tokens if token.kind == "name"]
        return names[-1] if names else ""

    @property
    def is_pointer(self) -> bool:
        return any(token.text in ("*", "&", "&&") for token in outside_angles(self.tokens))

    def index_of(self, attribute: str) -> int | None:
        """Return n of [[attribute(n)]], or None."""
        if attribute not in self.attributes:
            return None
        arguments = self.attributes[attribute]
        try:
            return int(text_of(arguments), 0)
        except ValueError:
            place = self.tokens[0].place
            raise MSLError(f"{place}: [[{attribute}({text_of(arguments)})]]: the index is not a number") from None


@dataclass
class Function:
    """A function with a body."""

    name: str
    head: list[Token]  # template<...>, specifiers and the return type
    attributes: dict[str, list[Token]]
    parameters: list[Parameter]
    body: list[Token]  # without its braces
    start: int  # index of the body in the program's tokens
    token: Token  # the name

    @property
    def is_kernel(self) -> bool:
        return "kernel" in self.attributes or any(token.text == "kernel" for token in self.head)

    @property
    def is_template(self) -> bool:
        return bool(self.head) and self.head[0].text == "template"

    @property
    def max_threads(self) -> int | None:
        arguments = self.attributes.get("max_total_threads_per_threadgroup")
        return int(text_of(arguments), 0) if arguments and arguments[0].kind == "number" else None


@dataclass
class Variable:
    """A variable at program scope, or in a record (`member`)."""

    tokens: list[Token]
    attributes: dict[str, list[Token]]
    member: bool

    @property
    def declaration(self) -> list[Token]:
        """Return the tokens before the initialiser."""
        for index, token in enumerate(self.tokens):
            if token.text in ("=", "{"):
                return self.tokens[:index]
        return self.tokens

    @property
    def name(self) -> str:
        names = [token.text for token in split(self.declaration, "[")[0] if token.kind == "name"]
        return names[-1]


@dataclass
class FunctionConstant:
    """`constant type name [[function_constant(index)]];`"""

    name: str
    type: str
    index: int
    optional: bool  # the shader asks is_function_constant_defined(name)


@dataclass
class Instantiation:
    """`template [[host_name("name")]] [[kernel]] ... function<arguments> ...;`"""

    name: str
    function: str
    expression: str


@dataclass
class Program:
    """A shader's declarations. `ranges` are the token ranges that the translator replaces, and what replaces them."""

    tokens: list[Token]
    functions: list[Function] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    instantiations: list[Instantiation] = field(default_factory=list)
    function_constants: dict[str, FunctionConstant] = field(default_factory=dict)
    ranges: dict[tuple[int, int], object] = field(default_factory=dict)

    @cached_property
    def kernels(self) -> dict[str, tuple[Function, str]]:
        """Map each kernel's host name to its function and the C++ expression for it."""
        functions = {function.name: function for function in self.functions if function.is_kernel}
        kernels = {name: (function, name) for name, function in functions.items() if not function.is_template}
        for instantiation in self.instantiations:
            if instantiation.function not in functions:
                raise MSLError(f"[[host_name]] of {instantiation.expression}: there is no such kernel")
            kernels[instantiation.name] = functions[instantiation.function], instantiation.expression
        return kernels


def outside_angles(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens outside template argument lists."""
    index = 0
    while index < len(tokens):
        end = closing_angle(tokens, index) if tokens[index].text == "<" else None
        if end is None:
            yield tokens[index]
        index = (index if end is None else end) + 1


def parse(tokens: list[Token]) -> Program:
    """Read the declarations in preprocessed tokens. Directives other than #line and #pragma are ignored."""
    program = Program(tokens)
    Parser(program).scope(0, len(tokens), member=False)
    defined = {
        tokens[i + 2].text for i, token in enumerate(tokens[:-2]) if token.text == "is_function_constant_defined"
    }
    for constant in program.function_constants.values():
        constant.optional = constant.name in defined
    return program


class Parser:
    """Walk over declarations: skip the bodies of functions, enter those of namespaces and records."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.tokens = program.tokens

    def scope(self, index: int, end: int, member: bool) -> None:
        while index < end:
            token = self.tokens[index]
            if token.kind == "directive" or token.text == ";":
                index += 1
            elif member and token.text in ("public", "private", "protected"):
                index += 2
            else:
                index = self.declaration(index, end, member)

    def declaration(self, start: int, end: int, member: bool) -> int:
        """Read one declaration and return the index after it."""
        tokens = self.tokens
        index, parameters, record, initialised = start, None, False, False
        while index < end:
            token = tokens[index]
            text = token.text
            if text == ";":
                self.finish(start, index, parameters, member)
                return index + 1
            if text == "=":
                initialised = tokens[index - 1].text != "operator"
            elif text == "{":
                close = closing(tokens, index)
                if self.opens_namespace(start, index):
                    self.scope(index + 1, close, member=False)
                    return close + 1
                if parameters is not None and not initialised:
                    self.function(start, parameters, index, close)
                    return close + 1
                if record and not initialised:
                    is_enum = any(t.text == "enum" for t in tokens[start:index])
                    if not is_enum:
                        self.scope(index + 1, close, member=True)
                    if close + 1 < end and tokens[close + 1].text == ";":
                        return close + 2
                index = close
            elif text in OPENING:
                if text == "(" and parameters is None and not initialised and self.names_function(index):
                    parameters = index
                index = closing(tokens, index)
            elif text == "<":
                index = closing_angle(tokens, index) or index
            elif text in RECORDS:
                record = True
            index += 1
        raise MSLError(f"{tokens[start].place}: this declaration does not end")

    def opens_namespace(self, start: int, index: int) -> bool:
        texts = [token.text for token in self.tokens[start:index]]
        return "namespace" in texts or texts[:1] == ["extern"]

    def names_function(self, index: int) -> bool:
        """Tell whether the ( at `index` follows a function's name."""
        before = self.tokens[index - 1]
        if before.kind == "name":
            return before.text not in ("decltype", "alignas", "__attribute__", "static_assert", "sizeof")
        return before.kind == "operator" and any(
            token.text == "operator" for token in self.tokens[max(0, index - 3) : index]
        )

    def function(self, start: int, opening: int, body: int, close: int) -> None:
        head, attributes = without_attributes(self.tokens[start : opening - 1])
        _, trailing = without_attributes(self.tokens[closing(self.tokens, opening) + 1 : body])
        self.program.functions.append(
            Function(
                name=self.tokens[opening - 1].text,
                head=[token for token in head if token.kind != "directive"],
                attributes=attributes | trailing,
                parameters=self.parameters(opening),
                body=self.tokens[body + 1 : close],
                start=body + 1,
                token=self.tokens[opening - 1],
            )
        )

    def parameters(self, opening: int) -> list[Parameter]:
        inside = self.tokens[opening + 1 : closing(self.tokens, opening)]
        parameters = []
        for part in split([token for token in inside if token.kind != "directive"]):
            tokens, attributes = without_attributes(part)
            default = next((i for i, token in enumerate(tokens) if token.text == "="), None)
            if text_of(tokens) != "void":
                parameters.append(Parameter(tokens[:default], attributes, default is not None))
        return parameters

    def finish(self, start: int, end: int, parameters: int | None, member: bool) -> None:
        """Read a declaration that ends with a semicolon: a variable, an instantiation, a prototype or a type."""
        tokens, attributes = without_attributes(self.tokens[start:end])
        tokens = [token for token in tokens if token.kind != "directive"]
        first = tokens[0].text if tokens else ""
        if first == "template":
            if "host_name" in attributes:
                self.instantiation(tokens, attributes, start, end)
            return
        if first in ("using", "typedef", "static_assert", "friend", "namespace", "") or parameters is not None:
            return
        if first in RECORDS and not any(token.text == "=" for token in tokens) and len(tokens) <= 2:
            return  # declared, not defined
        variable = Variable(tokens, attributes, member)
        if "function_constant" in attributes:
            index = int(text_of(attributes["function_constant"]), 0)
            kind = " ".join(token.text for token in tokens[:-1] if token.text not in ("constant", "const"))
            constant = FunctionConstant(variable.name, kind, index, optional=False)
            self.program.function_constants[constant.name] = constant
            self.program.ranges[start, end + 1] = constant
        else:
            self.program.variables.append(variable)

    def instantiation(self, tokens: list[Token], attributes: dict[str, list[Token]], start: int, end: int) -> None:
        """Read an instantiation. The last `name<arguments>` before any parameters is the kernel."""
        found = None
        for index, token in enumerate(tokens[1:], 1):
            if token.text == "(" and found is not None and tokens[1].text != "decltype":
                break
            if token.text == "<" and tokens[index - 1].kind == "name":
                close = closing_angle(tokens, index)
                if close is not None:
                    found = tokens[index - 1].text, text_of(tokens[index - 1 : close + 1])
        if found is None:
            raise MSLError(f"{tokens[0].place}: [[host_name]] of something that is not a template's instance")
        name = "".join(token.text.strip('"') for token in attributes["host_name"])
        self.program.instantiations.append(Instantiation(name, *found))
        self.program.ranges[start, end + 1] = None
