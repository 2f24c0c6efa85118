#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Types that the catalogue lacks, by brokerctl run: their results on each device.

    onnx-types.py BROKERCTL DEVICE

The models have 4-bit and 16-bit weights, zero points per matrix, operators with several types, and
reductions without axes.
"""
import math
import random

import onnxfile as onnx
from onnxmodel import Model, private_folder


def add_reductions_along_nothing(model):
    """Without axes only the sum is skipped; squares, absolute values and logarithms are computed."""
    x = [-1.5, 0.25, -0.0, 3.0, math.inf, -8.0, 0.5, 250.0]
    logs = [math.log(value) if value else -math.inf for value in map(abs, x)]
    wanted = {'L1': [abs(value) for value in x], 'L2': [abs(value) for value in x],
              'SumSquare': [value * value for value in x], 'LogSum': logs}
    for dtype, dims in ((onnx.FLOAT, [1, 2, 1, 2, 1, 1, 1, 2]), (onnx.FLOAT16, [8]), (onnx.FLOAT, [4, 2])):
        none = model.constant(onnx.INT64, [0], [])
        for kind in ('L1', 'L2', 'SumSquare', 'LogSum', 'LogSumExp', 'Sum', 'Mean', 'Max', 'Min', 'Prod'):
            values = list(map(abs, x)) if kind == 'LogSum' else x
            make = model.constant if dims == [4, 2] else model.input
            inputs = [make(dtype, dims, values)] + ([none] if dtype == onnx.FLOAT16 else [])
            # The square of 250 is just within the range of float16.
            model.node(f'Reduce{kind}', inputs, dtype, dims, wanted.get(kind, x), noop_with_empty_axes=1,
                       keepdims=0)


def add_small_weights(model, rng):
    """4-bit weights, with every form of scales, also where they become 4-bit products."""
    def numbers(n):
        return [rng.randrange(-16, 17) / 16 for _ in range(n)]

    rows, k, n = 3, 40, 6
    x = numbers(rows * k)
    a = {dtype: model.input(dtype, [rows, k], x) for dtype in (onnx.FLOAT, onnx.FLOAT16)}
    for dtype, block, has_zero, is_turned in (
            (onnx.INT4, 16, True, False), (onnx.INT4, 32, False, True), (onnx.UINT4, 8, True, False),
            (onnx.UINT4, 64, False, True), (onnx.UINT4, 'column', True, True),
            (onnx.INT4, 'column', False, False), (onnx.UINT4, 'one', True, False),
            (onnx.INT4, 'rows', True, True), (onnx.INT16, 'one', True, False),
            (onnx.UINT16, 'column', True, True)):
        width = 16 if dtype in (onnx.INT16, onnx.UINT16) else 4
        low = -(1 << width - 1) if dtype in (onnx.INT4, onnx.INT16) else 0
        dims = [n, k] if is_turned else [k, n]
        axis = int(is_turned) if block not in ('column', 'rows') else int(is_turned == (block == 'rows'))
        weights = [rng.randrange(low, low + (1 << width)) for _ in range(n * k)]
        if isinstance(block, int):
            scale_dims = [-(-dim // block) if i == axis else dim for i, dim in enumerate(dims)]
        else:
            scale_dims = [] if block == 'one' else [dims[axis]]
        n_scales = math.prod(scale_dims)
        scales = [rng.randrange(1, 9) / (1 << width) for _ in range(n_scales)]
        zeros = [rng.randrange(low, low + (1 << width)) if has_zero else 0 for _ in range(n_scales)]
        floats = []
        for i, weight in enumerate(weights):
            place = [i // dims[1], i % dims[1]]
            if isinstance(block, int):
                place[axis] //= block
                at = place[0] * scale_dims[1] + place[1]
            else:
                at = place[axis] if scale_dims else 0
            floats.append((weight - zeros[at]) * scales[at])
        product = [sum(x[r * k + i] * floats[c * k + i if is_turned else i * n + c] for i in range(k))
                   for r in range(rows) for c in range(n)]
        for of in (onnx.FLOAT, onnx.FLOAT16)[:2 if width == 4 else 1]:
            inputs = [model.constant(dtype, dims, weights), model.constant(of, scale_dims, scales)]
            if has_zero:
                inputs.append(model.constant(dtype, scale_dims, zeros))
            attributes = {'axis': axis, **({'block_size': block} if isinstance(block, int) else {})}
            model.node('DequantizeLinear', inputs, of, dims, floats, **attributes)
            matrix = model.outputs[-1][0]
            if is_turned and of == onnx.FLOAT:
                bias = numbers(n)
                model.node('Gemm', [a[of], matrix, model.constant(of, [n], bias)], of, [rows, n],
                           [value + bias[i % n] for i, value in enumerate(product)], transB=1)
                continue
            if is_turned:
                turned = [floats[c * k + i] for i in range(k) for c in range(n)]
                model.node('Transpose', [matrix], of, [k, n], turned)
                matrix = model.outputs[-1][0]
            model.node('MatMul', [a[of], matrix], of, [rows, n], product)


def add_mixed_types(model, rng):
    """float16 data with float32 statistics, scales or results, and the reverse."""
    n, c, h = 2, 3, 4
    x = [rng.randrange(-64, 65) / 16 for _ in range(n * c * h)]
    half, full = model.input(onnx.FLOAT16, [n, c, h], x), model.input(onnx.FLOAT, [n, c, h], x)
    # The variance exceeds the range of float16; the scale compensates for it.
    scale, bias, mean, variance = [300.0, 1.5, 2.0], [0.5, -1.0, 0.0], [1.0, 0.25, -2.0], [90000.0, 0.5, 2.0]

    def numbers(dtype, values):
        return model.constant(dtype, [len(values)], values)

    wanted = [(value - mean[i // h % c]) / math.sqrt(variance[i // h % c] + 1e-5) * scale[i // h % c]
              + bias[i // h % c] for i, value in enumerate(x)]
    for small in (onnx.FLOAT16, onnx.FLOAT):
        parts = [numbers(small, scale), numbers(small, bias), numbers(onnx.FLOAT, mean),
                 numbers(onnx.FLOAT, variance)]
        model.node('BatchNormalization', [half, *parts], onnx.FLOAT16, [n, c, h], wanted)
    parts = [numbers(onnx.FLOAT16, values) for values in (scale, bias, mean, [4.0, 0.5, 2.0])]
    model.node('BatchNormalization', [full, *parts], onnx.FLOAT, [n, c, h],
               [value * (300 if i // h % c == 0 else 1) if i // h % c else
                (x[i] - 1) / math.sqrt(4 + 1e-5) * 300 + 0.5 for i, value in enumerate(wanted)])
    factors, rms, norm, means = [1.5, -2.0, 0.5, 3.0], [], [], []
    deviations = []
    for row in (x[i:i + h] for i in range(0, len(x), h)):
        root = math.sqrt(sum(value * value for value in row) / h + 1e-5)
        rms += [value / root * factor for value, factor in zip(row, factors)]
        means.append(sum(row) / h)
        deviations.append(1 / math.sqrt(sum((value - means[-1]) ** 2 for value in row) / h + 1e-5))
        norm += [(value - means[-1]) * deviations[-1] * factor for value, factor in zip(row, factors)]
    model.node('RMSNormalization', [half, numbers(onnx.FLOAT, factors)], onnx.FLOAT, [n, c, h], rms)
    model.node('RMSNormalization', [full, numbers(onnx.FLOAT16, factors)], onnx.FLOAT16, [n, c, h], rms)
    # Statistics of type bfloat16 are accepted, too.
    model.node('LayerNormalization', [half, numbers(onnx.FLOAT16, factors)], onnx.FLOAT16, [n, c, h], norm,
               stash_type=onnx.BFLOAT16)
    model.node('LayerNormalization', [full, numbers(onnx.FLOAT, factors)], onnx.FLOAT, [n, c, h], norm,
               stash_type=onnx.FLOAT)

    step = model.constant(onnx.FLOAT, [], [0.375])
    quantized = [max(-128, min(127, round(value / 0.375) + 3)) for value in x]
    zero = model.constant(onnx.INT8, [], [3])
    model.node('QuantizeLinear', [half, step, zero], onnx.INT8, [n, c, h], quantized)
    model.node('QuantizeLinear', [full, model.constant(onnx.FLOAT16, [], [0.375]), zero], onnx.INT8, [n, c, h],
               quantized, precision=onnx.FLOAT, output_dtype=onnx.INT8)
    whole = model.input(onnx.INT32, [4], [5, -3, 200, 70001])
    model.node('QuantizeLinear', [whole, model.constant(onnx.FLOAT, [], [2.0]),
                                  model.constant(onnx.UINT8, [], [1])], onnx.UINT8, [4], [3, 0, 101, 255])
    small = model.input(onnx.INT8, [n, c, h], quantized)
    back = [(value - 3) * 0.375 for value in quantized]
    model.node('DequantizeLinear', [small, step, zero], onnx.FLOAT16, [n, c, h], back, output_dtype=onnx.FLOAT16)
    model.node('DequantizeLinear', [small, model.constant(onnx.FLOAT16, [], [0.375]), zero], onnx.FLOAT,
               [n, c, h], back, output_dtype=onnx.FLOAT)


def add_zero_points(model, rng):
    """Integer products with a zero point per matrix."""
    n, rows, k, columns = 2, 3, 5, 4
    a, b = [rng.randrange(256) for _ in range(n * rows * k)], [rng.randrange(-128, 128) for _ in range(n * k * columns)]
    of_rows, of_columns = [7, 100, 255, 0, 1, 2], [-128, 127, 3, 4, 5, -6, 7, 0]
    inputs = [model.input(onnx.UINT8, [n, rows, k], a), model.input(onnx.INT8, [n, k, columns], b)]
    row_points = {'each': ([n, rows, 1], of_rows), 'all': ([rows], of_rows[:rows] * n),
                  'none': (None, [0] * (n * rows))}
    column_points = {'each': ([n, 1, columns], of_columns), 'all': ([columns], of_columns[:columns] * n),
                     'none': (None, [0] * (n * columns))}
    for for_rows, for_columns in (('each', 'each'), ('all', 'each'), ('each', 'all'), ('none', 'each'),
                                  ('each', 'none')):
        (p_dims, p), (q_dims, q) = row_points[for_rows], column_points[for_columns]
        wanted = [sum((a[(m * rows + r) * k + i] - p[m * rows + r]) *
                      (b[(m * k + i) * columns + c] - q[m * columns + c]) for i in range(k))
                  for m in range(n) for r in range(rows) for c in range(columns)]
        points = [model.constant(dtype, dims, values[:math.prod(dims)]) if dims else ''
                  for dtype, dims, values in ((onnx.UINT8, p_dims, p), (onnx.INT8, q_dims, q))]
        model.node('MatMulInteger', inputs + points[:1 if not q_dims else 2], onnx.INT32, [n, rows, columns], wanted)


def main():
    rng = random.Random(4)
    with private_folder('types-') as folder:
        model = Model(folder, 18)
        add_reductions_along_nothing(model)
        model.run()
        model = Model(folder, 21)
        add_small_weights(model, rng)
        model.run()
        model.run('--disable-optimisation=all')
        model = Model(folder, 23)
        add_mixed_types(model, rng)
        add_zero_points(model, rng)
        model.run()


main()
