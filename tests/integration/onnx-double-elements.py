#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Models of float64 by brokerctl run whose nodes compute or move single elements.

    onnx-double-elements.py BROKERCTL DEVICE
"""
import math
import struct

import onnxfile as onnx
from onnxmodel import Model, private_folder

DOUBLE = onnx.DOUBLE
X = [0.1, -0.2, 1 / 3, -2 / 3, 1e300, -1e-300, 0.7, 2.0 ** 53 + 2, math.pi, -math.e, 1e-9, 12345.678901234567]


def as_float(value):
    return struct.unpack('f', struct.pack('f', value))[0]


def add_moves(model):
    """Moves keep the bits, and attributes of other types keep their values."""
    x = model.input(DOUBLE, [3, 4], X)
    columns = [X[row * 4 + column] for column in range(4) for row in range(3)]
    model.node('Transpose', [x], DOUBLE, [4, 3], columns, perm=[1, 0])
    for value in (0.1, 0.5):
        given = [model.constant(onnx.INT64, [4], [0, 1, 0, 0]), model.constant(DOUBLE, [], [value])]
        model.node('Pad', [x, *given], DOUBLE, [3, 5],
                   [value if column < 0 else X[row * 4 + column] for row in range(3) for column in range(-1, 4)])
    model.node('Concat', [x, model.constant(DOUBLE, [1, 4], X[:4])], DOUBLE, [4, 4], X + X[:4], axis=0)
    model.node('Gather', [x, model.input(onnx.INT64, [2], [2, -3])], DOUBLE, [2, 4], X[8:] + X[:4])
    updates = [model.input(onnx.INT64, [1, 1], [1]), model.constant(DOUBLE, [1, 4], X[8:])]
    model.node('ScatterND', [x, *updates], DOUBLE, [3, 4], X[:4] + X[8:] + X[8:])
    mask = model.input(onnx.BOOL, [4], [1, 0, 0, 1])
    model.node('Where', [mask, x, model.constant(DOUBLE, [], [0.3])], DOUBLE, [3, 4],
               [value if i % 4 in (0, 3) else 0.3 for i, value in enumerate(X)])
    model.node('Trilu', [x], DOUBLE, [3, 4], [value if i % 4 >= i // 4 else 0.0 for i, value in enumerate(X)])
    model.node('Tile', [model.input(DOUBLE, [2], X[:2]), model.constant(onnx.INT64, [1], [2])], DOUBLE, [4],
               X[:2] * 2)
    model.node('OneHot', [model.input(onnx.INT64, [2], [0, 1]), model.constant(onnx.INT64, [1], [2]),
                          model.constant(DOUBLE, [2], [0.1, 0.2])], DOUBLE, [2, 2], [0.2, 0.1, 0.1, 0.2])
    model.node('EyeLike', [model.input(onnx.FLOAT, [2, 2], [1.0] * 4)], DOUBLE, [2, 2], [1.0, 0.0, 0.0, 1.0],
               dtype=DOUBLE)
    given = [model.constant(DOUBLE, [], [value]) for value in (0.1, 1.0, 0.3)]
    model.node('Range', given, DOUBLE, [3], [0.1, 0.4, 0.7])


def add_casts(model):
    values = [0.1, -2.5, 1 / 3, 65519.99999999999, 2047.4999999999, 0.0]
    x = model.input(DOUBLE, [6], values)
    model.node('Cast', [x], onnx.FLOAT, [6], [as_float(value) for value in values], to=onnx.FLOAT)
    # The values are rounded once: by way of float32 the fourth would be infinite and the fifth 2048.
    model.node('Cast', [x], onnx.FLOAT16, [6], [0.1, -2.5, 1 / 3, 65504.0, 2047.0, 0.0], to=onnx.FLOAT16)
    model.node('Cast', [x], onnx.INT32, [6], [int(value) for value in values], to=onnx.INT32)
    model.node('Cast', [x], onnx.BOOL, [6], [1, 1, 1, 1, 1, 0], to=onnx.BOOL)
    whole = [2 ** 53 - 1, -(2 ** 40) - 1, 7]
    model.node('Cast', [model.input(onnx.INT64, [3], whole)], DOUBLE, [3], [float(value) for value in whole],
               to=DOUBLE)
    floats = [as_float(value) for value in values]
    model.node('CastLike', [model.input(onnx.FLOAT, [6], floats), x], DOUBLE, [6], floats)


def add_functions(model):
    values = [0.1, 0.9, -0.3, 0.7, 1e-8, -0.5]
    x = model.input(DOUBLE, [6], values)
    for op, function in (('Exp', math.exp), ('Sin', math.sin), ('Tan', math.tan), ('Asin', math.asin),
                         ('Atanh', math.atanh), ('Sinh', math.sinh), ('Tanh', math.tanh), ('Erf', math.erf),
                         ('Neg', lambda v: -v), ('Ceil', lambda v: float(math.ceil(v))),
                         ('Sigmoid', lambda v: 1 / (1 + math.exp(-v))),
                         ('Softplus', lambda v: math.log1p(math.exp(v))),
                         ('Softsign', lambda v: v / (1 + abs(v))), ('Relu', lambda v: max(v, 0.0))):
        model.node(op, [x], DOUBLE, [6], [function(value) for value in values])
    model.node('LeakyRelu', [x], DOUBLE, [6], [v if v > 0 else v * as_float(0.01) for v in values])
    model.node('Elu', [x], DOUBLE, [6], [v if v > 0 else 1.5 * math.expm1(v) for v in values], alpha=1.5)
    model.node('Shrink', [x], DOUBLE, [6],
               [v - 0.25 if v > 0.5 else v + 0.25 if v < -0.5 else 0.0 for v in values], lambd=0.5, bias=0.25)
    other = model.constant(DOUBLE, [], [1 / 3])
    for op, function in (('Add', lambda v: v + 1 / 3), ('Mul', lambda v: v * (1 / 3)),
                         ('Div', lambda v: v / (1 / 3)), ('Max', lambda v: max(v, 1 / 3)),
                         ('Min', lambda v: min(v, 1 / 3))):
        model.node(op, [x, other], DOUBLE, [6], [function(value) for value in values])
    model.node('Greater', [x, model.constant(DOUBLE, [], [0.7])], onnx.BOOL, [6], [0, 1, 0, 0, 0, 0])
    model.node('Mod', [x, other], DOUBLE, [6], [math.fmod(value, 1 / 3) for value in values], fmod=1)
    model.node('Mean', [x, x, other], DOUBLE, [6], [(2 * value + 1 / 3) / 3 for value in values])
    # Each device can compute squares.
    model.node('Pow', [x, model.constant(DOUBLE, [], [2.0])], DOUBLE, [6], [value * value for value in values])
    # Exponents and bases have other types, of which either may hold more.
    model.node('Pow', [x, model.constant(onnx.INT64, [], [3])], DOUBLE, [6], [value ** 3 for value in values])
    model.node('Pow', [model.input(onnx.INT64, [2], [3, 10]), model.constant(DOUBLE, [], [15.0])], onnx.INT64,
               [2], [3 ** 15, 10 ** 15])


def add_clips(model):
    """Limits that float32 can represent, and others."""
    values = [-1.0, 0.1, 0.3, 0.7, 5.0]
    x = model.input(DOUBLE, [5], values)
    for low, high in ((0.25, 0.5), (0.2, 0.6), (0.25, 0.6), (0.2, 0.5)):
        limits = [model.constant(DOUBLE, [], [limit]) for limit in (low, high)]
        model.node('Clip', [x, *limits], DOUBLE, [5], [min(max(value, low), high) for value in values])
        model.node('Clip', [x, '', limits[1]], DOUBLE, [5], [min(value, high) for value in values])
        model.node('Clip', [x, limits[0]], DOUBLE, [5], [max(value, low) for value in values])


def add_patterns(model):
    """Several float64 nodes are not fused, because a fused operator computes in float32."""
    values = [0.1, 0.9, -0.3, 0.7, 1e-3, -0.5]
    x = model.input(DOUBLE, [6], values)

    def inner(op, inputs, **attributes):
        name = f'inner{len(model.nodes)}'
        model.nodes.append(onnx.node(op, inputs, [name], name, **attributes))
        return name

    gate = inner('Sigmoid', [inner('Mul', [x, model.constant(DOUBLE, [], [1.7])])])
    model.node('Mul', [x, gate], DOUBLE, [6], [v / (1 + math.exp(-1.7 * v)) for v in values])
    root = inner('Erf', [inner('Div', [x, model.constant(DOUBLE, [], [math.sqrt(2)])])])
    half = inner('Mul', [x, model.constant(DOUBLE, [], [0.5])])
    model.node('Mul', [half, inner('Add', [root, model.constant(DOUBLE, [], [1.0])])], DOUBLE, [6],
               [v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in values])


def main():
    with private_folder('doubles-') as folder:
        for add in (add_moves, add_casts, add_functions, add_clips, add_patterns):
            model = Model(folder, 18)
            add(model)
            # Casts to float32 and float16 are exact in any case.
            model.run('--rtol=1e-13', '--atol=0')


main()
