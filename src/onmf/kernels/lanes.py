"""Eight numbers at a time, in a fixed order: inner products with the same bits on every processor.

A compiler may vectorise a sum of products only if it is allowed to change the order of the additions, and then each
instruction set has an order of its own. Here the order is written down: lane l of a vector adds the products of the
entries l, l + 8, l + 16, …, and the lanes are added at the end. The compiler cuts vectors to the size that the
processor has, which changes no bit. Products and sums are rounded separately; there is no fused multiply-add.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

WIDTH = 8
VECTOR = ir.VectorType(ir.DoubleType(), WIDTH)
INT = ir.IntType(32)


class Lanes(types.Type):
    """The type of eight numbers of float64 inside kernels."""


@register_model(Lanes)
class LanesModel(models.PrimitiveModel):
    """How they are held: in a vector register."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, VECTOR)  # type: ignore[no-untyped-call]


LANES = Lanes("lanes")


def _zeros(context: Any) -> Any:
    return LANES(), lambda context, builder, signature, arguments: ir.Constant(VECTOR, [0.0] * WIDTH)


def _repeat(context: Any, x: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), arguments[0], INT(0))
        return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(INT, WIDTH), [0] * WIDTH))

    return LANES(types.float64), generate


def _load(context: Any, array: Any, start: Any) -> Any:
    number = array.dtype

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.gep(context.make_array(array)(context, builder, arguments[0]).data, [arguments[1]])
        stored = ir.VectorType(place.type.pointee, WIDTH)
        values = builder.load(builder.bitcast(place, stored.as_pointer()), align=number.bitwidth // 8)
        if not isinstance(number, types.Float):
            return (builder.sitofp if number.signed else builder.uitofp)(values, VECTOR)
        return values if number.bitwidth == 64 else builder.fpext(values, VECTOR)

    return LANES(array, start), generate


def _store(context: Any, lanes: Any, array: Any, start: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.gep(context.make_array(array)(context, builder, arguments[1]).data, [arguments[2]])
        builder.store(arguments[0], builder.bitcast(place, VECTOR.as_pointer()), align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(lanes, array, start), generate


def _add_products(context: Any, sums: Any, x: Any, y: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fadd(arguments[0], builder.fmul(arguments[1], arguments[2]))

    return LANES(sums, x, y), generate


def _total(context: Any, sums: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        left, width = arguments[0], WIDTH
        while width > 1:
            width //= 2
            places = ir.VectorType(INT, width)
            halves = (ir.Constant(places, list(range(first, first + width))) for first in (0, width))
            left = builder.fadd(*(builder.shuffle_vector(left, left, half) for half in halves))
        return builder.extract_element(left, INT(0))

    return types.float64(sums), generate


zeros: Any = intrinsic(_zeros)
"""``zeros()``: eight zeros."""
repeat: Any = intrinsic(_repeat)
"""``repeat(x)``: a number eight times."""
load: Any = intrinsic(_load)
"""``load(array, start)``: eight entries of a contiguous array of any numbers, from ``start`` on."""
store: Any = intrinsic(_store)
"""``store(lanes, array, start)``: write them to a contiguous array of float64, from ``start`` on."""
add_products: Any = intrinsic(_add_products)
"""``add_products(sums, x, y)``: sums + x · y, lane by lane."""
total: Any = intrinsic(_total)
"""``total(sums)``: the sum over the lanes."""
