"""A plugin of pytest: multiply weights as on a CPU with VNNI, by instructions that every x86 CPU has.

PLAIN_LANES is 8, or 16 as with AVX-512. Kernels are compiled into a folder of their own.
"""

import os

from helpers import other_cpus  # noqa: F401  # before octavo
from llvmlite import ir

from octavo.cpu_kernels.numba_support import machine_features

machine_features.HAS_VNNI = machine_features.ADDS_PRODUCTS = True
machine_features.LANES = int(os.environ["PLAIN_LANES"])

from octavo.cpu_kernels.products import integers  # noqa: E402


def _every(builder, vector, first, step):
    """Return every so many lanes of a vector from one on, as int32."""
    places = list(range(first, vector.type.count, step))
    lanes = builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(ir.IntType(32), len(places)), places))
    return lanes, ir.VectorType(ir.IntType(32), len(places))


def add_products(builder, total, codes, elements):
    elements = builder.bitcast(elements, codes.type)
    for i in range(4):
        (own, kind), (others, _kind) = (_every(builder, each, i, 4) for each in (codes, elements))
        total = builder.add(total, builder.mul(builder.zext(own, kind), builder.sext(others, kind)))
    return total


def multiply_words(builder, left, right):
    words = integers.vectors_of(right.type.count * right.type.element.width // 32).words
    total = None
    for i in range(2):
        own = [_every(builder, builder.bitcast(each, words), i, 2) for each in (left, right)]
        product = builder.mul(*(builder.sext(each, kind) for each, kind in own))
        total = builder.add(total, product) if total else product
    return total


integers.add_products, integers.multiply_words = add_products, multiply_words
