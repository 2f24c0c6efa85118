#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Types that the catalogue does not have as they are, by brokerctl run: their numbers, on each device.

    onnx-types.py BROKERCTL DEVICE

Weights of four bits and of sixteen, operators of several types at once, and reductions of nothing.
"""
import math
import os
import random
import tempfile

import onnxfile as onnx
from onnxmodel import Model


def add_reductions_along_nothing(model):
    """Only the sum is left out: squares, absolute values and logarithms are not."""
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
            # In float16, 250 has a square that is there just so.
            model.node(f'Reduce{kind}', inputs, dtype, dims, wanted.get(kind, x), noop_with_empty_axes=1,
                       keepdims=0)


def add_small_weights(model, rng):
    """Of four bits, in every form that scales may have; also where they become 4-bit products."""
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


def main():
    os.environ.pop('RINGBROKER_SOCKET', None)
    rng = random.Random(4)
    with tempfile.TemporaryDirectory(prefix='types-', dir='/tmp') as folder:
        os.environ['XDG_RUNTIME_DIR'] = folder
        os.environ['XDG_CACHE_HOME'] = os.path.join(folder, 'cache')
        model = Model(folder, 18)
        add_reductions_along_nothing(model)
        model.run()
        model = Model(folder, 21)
        add_small_weights(model, rng)
        model.run()
        model.run('--disable-optimisation=all')


main()
