"""Find what Metal refuses although clang accepts its translation. Each lint is a function of the program.

A lint reports nothing if tokens cannot decide, for example which of several overloads a call means.
"""

from collections import defaultdict
from collections.abc import Iterator

from metal_simulator.program import Function, Program, outside_angles
from metal_simulator.tokens import MSLError, Token, closing, closing_angle, split
from metal_simulator.translate import SPACES, declares_threadgroup_variable, position_of, skip_type, statement_starts

NOT_IN_METAL = {
    "double": "Metal has no double",
    "goto": "Metal has no goto",
    "virtual": "Metal has no virtual functions",
    "new": "Metal has no new",
    "try": "Metal has no exceptions",
    "catch": "Metal has no exceptions",
    "throw": "Metal has no exceptions",
    "noexcept": "Metal has no noexcept",
    "dynamic_cast": "Metal has no dynamic_cast",
    "typeid": "Metal has no typeid",
    "thread_local": "Metal has no thread_local",
    "register": "Metal has no register variables",
    "asm": "Metal has no asm",
    "std": "Metal has no C++ standard library",
    "__attribute__": "an attribute of this form is clang's, not Metal's",
}
CONTROL = {"if", "for", "while", "switch", "return", "sizeof", "alignof", "decltype", "static_assert", "case"}
NOT_TYPES = {"return", "else", "case", "goto", "delete", "using", "typedef", "auto", "sizeof", "throw", "do"}


def check(program: Program) -> None:
    """Raise MSLError with all findings, one a line."""
    findings = sorted({(token.file, token.line, message) for lint in LINTS for token, message in lint(program)})
    if findings:
        raise MSLError("\n".join(f"{file}:{line}: {message}" for file, line, message in findings))


Findings = Iterator[tuple[Token, str]]


def words(program: Program) -> Findings:
    """Find keywords of C++ that Metal lacks."""
    tokens = program.tokens
    for index, token in enumerate(tokens):
        if token.kind == "name" and token.text in NOT_IN_METAL:
            if tokens[index - 1].text not in (".", "->", "::"):
                yield token, NOT_IN_METAL[token.text]
        elif token.text == "delete" and tokens[index - 1].text != "=":
            yield token, "Metal has no delete"
        elif token.text == "long" and index and tokens[index - 1].text == "long":
            yield token, "Metal has no long long; long has 64 bits"


def recursion(program: Program) -> Findings:
    """Find functions that can call themselves. Calls that may mean one of several overloads are not followed."""
    by_name: dict[str, list[int]] = defaultdict(list)
    for number, function in enumerate(program.functions):
        by_name[function.name].append(number)
    calls: dict[int, set[int]] = {}
    for number, function in enumerate(program.functions):
        calls[number] = set()
        for name, arguments in called(function.body):
            meant = [n for n in by_name[name] if takes(program.functions[n], arguments)]
            if len(meant) == 1:
                calls[number].add(meant[0])
    for number, function in enumerate(program.functions):
        reached: set[int] = set()
        waiting = list(calls[number])
        while waiting:
            following = waiting.pop()
            if following not in reached:
                reached.add(following)
                waiting.extend(calls[following])
        if number in reached:
            through = [program.functions[n].name for n in sorted(reached - {number}) if number in reachable(calls, n)]
            how = f", through {', '.join(through)}" if through else ""
            yield function.token, f"{function.name} calls itself{how}: Metal has no recursion"


def reachable(calls: dict[int, set[int]], start: int) -> set[int]:
    reached: set[int] = set()
    waiting = [start]
    while waiting:
        for following in calls[waiting.pop()] - reached:
            reached.add(following)
            waiting.append(following)
    return reached


def called(body: list[Token]) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of arguments of each call in a body."""
    for index, token in enumerate(body):
        if token.kind != "name" or token.text in CONTROL:
            continue
        after = index + 1
        if after < len(body) and body[after].text == "<":
            close = closing_angle(body, after)
            after = after if close is None else close + 1
        if after < len(body) and body[after].text == "(":
            yield token.text, len(split(body[after + 1 : closing(body, after)]))


def takes(function: Function, arguments: int) -> bool:
    required = sum(not parameter.has_default for parameter in function.parameters)
    return required <= arguments <= len(function.parameters)


def static_locals(program: Program) -> Findings:
    """Find static variables in functions that are not in the constant address space."""
    for function in program.functions:
        for start in statement_starts(function.body):
            end = next((i for i in range(start, len(function.body)) if function.body[i].text == ";"), start)
            texts = [token.text for token in function.body[start:end]]
            if "static" in texts[:3] and "constant" not in texts:
                yield function.body[start], "a static local variable: Metal has them in the constant space only"


def globals_(program: Program) -> Findings:
    """Find variables at program scope and static members that are not in the constant address space."""
    for variable in program.variables:
        texts = [token.text for token in outside_angles(variable.declaration)]
        if variable.member and "static" not in texts:
            continue
        where = "static member" if variable.member else "variable at program scope"
        if "threadgroup" in texts and "*" not in texts:
            yield variable.tokens[0], f"{variable.name}: threadgroup variables are declared in kernels only"
        elif "constant" not in texts:
            yield variable.tokens[0], f"{variable.name}: a {where} must be in the constant address space"
        elif not variable.member and len(variable.declaration) == len(variable.tokens):
            yield variable.tokens[0], f"{variable.name}: a constant needs a value or [[function_constant(n)]]"


def derived_constants(program: Program) -> Findings:
    """Find constants that depend on function constants. Metal allows them; the simulator computes them too early."""
    for variable in program.variables:
        for token in variable.tokens[len(variable.declaration) :]:
            if token.text in program.function_constants:
                yield token, f"{variable.name}: the simulator has no constants that depend on function constants"


def kernel_parameters(program: Program) -> Findings:
    """Find kernels that return a value, and parameters without an attribute or with another's index."""
    for function in program.functions:
        if not function.is_kernel:
            continue
        if not any(token.text == "void" for token in function.head):
            yield function.token, f"kernel {function.name} must return void"
        taken: dict[tuple[str, int], str] = {}
        for parameter in function.parameters:
            token, name = parameter.tokens[0], parameter.name
            indices = [(kind, parameter.index_of(kind)) for kind in ("buffer", "threadgroup")]
            bound = [(kind, index) for kind, index in indices if index is not None]
            if not bound and position_of(parameter) is None:
                yield token, f"kernel {function.name}: {name} has no [[buffer(n)]], [[threadgroup(n)]] or position"
            for key in bound:
                if key in taken:
                    yield token, f"kernel {function.name}: {name} and {taken[key]} are both {key[0]}({key[1]})"
                taken[key] = name
            spaces = {token.text for token in parameter.tokens} & SPACES
            if bound and not parameter.is_pointer:
                yield token, f"kernel {function.name}: {name} is a {bound[0][0]} and must be a pointer or reference"
            elif bound and bound[0][0] == "buffer" and not spaces & {"device", "constant"}:
                yield token, f"kernel {function.name}: the buffer {name} must be device or constant"
            elif bound and bound[0][0] == "threadgroup" and spaces != {"threadgroup"}:
                yield token, f"kernel {function.name}: {name} must be threadgroup"


def threadgroup_variables(program: Program) -> Findings:
    """Find threadgroup variables outside kernels, or with an initial value."""
    for function in program.functions:
        for index, token in enumerate(function.body):
            if token.text != "threadgroup":
                continue
            declaration = declares_threadgroup_variable(function.body, index)
            if declaration and not function.is_kernel:
                yield token, f"{function.name} is no kernel: threadgroup variables are declared in kernels only"
            elif declaration and any(part.text in ("=", "{") for part in declaration):
                yield token, "a threadgroup variable has no initial value"


def address_spaces(program: Program) -> Findings:
    """Find pointers and references without an address space: parameters, results, members and local variables."""
    message = "this pointer or reference names no address space (device, constant, threadgroup or thread)"
    for function in program.functions:
        for parameter in function.parameters:
            texts = [token.text for token in outside_angles(parameter.tokens)]
            if parameter.is_pointer and not SPACES & set(texts) and "auto" not in texts:
                yield parameter.tokens[0], f"{parameter.name or 'parameter'}: {message}"
        head = [token for token in outside_angles(function.head) if token.text != "operator"]
        if head and head[-1].text in ("*", "&") and not SPACES & {token.text for token in head}:
            yield function.token, f"the result of {function.name}: {message}"
        yield from local_pointers(function, message)
    for variable in program.variables:
        texts = [token.text for token in outside_angles(variable.declaration)]
        if {"*", "&"} & set(texts) and not SPACES & set(texts):
            yield variable.tokens[0], f"{variable.name}: {message}"


def local_pointers(function: Function, message: str) -> Findings:
    body = function.body
    for start in statement_starts(body):
        if start >= len(body) or body[start].text in NOT_TYPES | SPACES:
            continue
        star = skip_type(body, start)
        if (
            star + 2 < len(body)
            and star > start
            and body[star].text in ("*", "&")
            and body[star + 1].kind == "name"
            and body[star + 2].text in ("=", ";", ",", ":", "[")
        ):
            yield body[start], f"{body[star + 1]}: {message}"


LINTS = (
    words,
    recursion,
    static_locals,
    globals_,
    derived_constants,
    kernel_parameters,
    threadgroup_variables,
    address_spaces,
)
