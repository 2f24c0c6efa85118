#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Models of float64 by brokerctl run, with almost full precision.

    onnx-doubles.py BROKERCTL DEVICE

The models have operators that the loader builds from several others, and operators with several types.
"""
import math
import random

import onnxfile as onnx
from onnxmodel import Model, private_folder

# Attributes of ONNX are float32, too.
EPSILON = 2.0 ** -7


def numbers(rng, n):
    return [rng.uniform(-1, 1) for _ in range(n)]


def normalised(x, epsilon):
    mean = math.fsum(x) / len(x)
    variance = math.fsum((each - mean) ** 2 for each in x) / len(x)
    return [(each - mean) / math.sqrt(variance + epsilon) for each in x], mean, variance


def add_norms(model, rng):
    """Norms over two rows of five: float64 with scales of any type, and float32 statistics."""
    x = [rng.randrange(-1000, 1000) / 512 for _ in range(10)]
    scale, bias = [0.5, -2.0, 0.25, 1.0, 4.0], [0.125, 0.5, 0.0, -1.0, 2.0]
    rows = [x[:5], x[5:]]
    of = {dtype: model.input(dtype, [2, 5], x) for dtype in (onnx.DOUBLE, onnx.FLOAT)}
    scales = {dtype: model.constant(dtype, [5], scale) for dtype in (onnx.DOUBLE, onnx.FLOAT16)}
    biases = model.constant(onnx.DOUBLE, [5], bias)
    y = [each * scale[i] + bias[i] for row in rows
         for i, each in enumerate(normalised(row, EPSILON)[0])]
    more = [(onnx.FLOAT, [2, 1], [normalised(row, EPSILON)[1] for row in rows]),
            (onnx.FLOAT, [2, 1], [1 / math.sqrt(normalised(row, EPSILON)[2] + EPSILON) for row in rows])]
    model.node('LayerNormalization', [of[onnx.DOUBLE], scales[onnx.DOUBLE], biases], onnx.DOUBLE, [2, 5],
               y, more, epsilon=EPSILON)
    squares = [math.fsum(each * each for each in row) / 5 for row in rows]
    y = [each * scale[i] / math.sqrt(square + EPSILON) for row, square in zip(rows, squares)
         for i, each in enumerate(row)]
    model.node('RMSNormalization', [of[onnx.DOUBLE], scales[onnx.FLOAT16]], onnx.FLOAT16, [2, 5], y,
               epsilon=EPSILON)
    model.node('RMSNormalization', [of[onnx.DOUBLE], scales[onnx.DOUBLE]], onnx.DOUBLE, [2, 5], y,
               epsilon=EPSILON)
    mean, variance = numbers(rng, 5), [rng.uniform(0.5, 2) for _ in range(5)]
    y = [(each - mean[i]) / math.sqrt(variance[i] + EPSILON) * scale[i] + bias[i]
         for row in rows for i, each in enumerate(row)]
    given = [model.constant(onnx.DOUBLE, [5], each) for each in (mean, variance)]
    for dtype in (onnx.DOUBLE, onnx.FLOAT):
        for name in scales.values():
            model.node('BatchNormalization', [of[dtype], name, biases, *given], dtype, [2, 5], y,
                       epsilon=EPSILON)
    hard = [float(i == row.index(max(row))) for row in rows for i in range(5)]
    model.node('Hardmax', [of[onnx.DOUBLE]], onnx.DOUBLE, [2, 5], hard)
    model.node('MeanVarianceNormalization', [of[onnx.DOUBLE]], onnx.DOUBLE, [2, 5],
               [each for row in rows for each in normalised_without(row)], axes=[1])


def normalised_without(row):
    """Normalize with epsilon added to the root instead of below it."""
    _, mean, variance = normalised(row, 0)
    return [(each - mean) / (math.sqrt(variance) + 1e-9) for each in row]


def add_training(model, rng):
    """BatchNormalization of a batch, and its running statistics."""
    x, momentum = numbers(rng, 12), 0.75
    channels = [[x[i] for i in range(12) if i // 2 % 3 == c] for c in range(3)]
    made = [normalised(channel, EPSILON) for channel in channels]
    old = [numbers(rng, 3), [rng.uniform(0.5, 2) for _ in range(3)]]
    scale, bias = [2.0, 0.5, -1.0], [0.0, 1.0, 0.25]
    y = []
    for i in range(12):
        c = i // 2 % 3
        y.append(made[c][0][len([j for j in range(i) if j // 2 % 3 == c])] * scale[c] + bias[c])
    running = [[old[k][c] * momentum + made[c][k + 1] * (1 - momentum) for c in range(3)]
               for k in range(2)]
    inputs = [model.input(onnx.DOUBLE, [2, 3, 2], x)]
    inputs += [model.constant(onnx.DOUBLE, [3], each) for each in (scale, bias, *old)]
    model.node('BatchNormalization', inputs, onnx.DOUBLE, [2, 3, 2], y,
               [(onnx.DOUBLE, [3], each) for each in running], training_mode=1, momentum=momentum,
               epsilon=EPSILON)


def add_windows(model, rng):
    """LocalResponseNormalization over three channels of five."""
    x = numbers(rng, 10)
    y = []
    for i, each in enumerate(x):
        near = [x[j] for j in range(i % 2, 10, 2) if abs(j - i) <= 2]
        y.append(each / (1 + 0.5 / 3 * math.fsum(v * v for v in near)) ** 0.75)
    model.node('LRN', [model.input(onnx.DOUBLE, [1, 5, 2], x)], onnx.DOUBLE, [1, 5, 2], y, size=3,
               alpha=0.5, beta=0.75, bias=1.0)


def interpolated(x, n, weight, reach, shrink):
    """Return @n interpolated elements of a line, with ONNX's half_pixel coordinates."""
    y = []
    for i in range(n):
        at = (i + 0.5) * len(x) / n - 0.5
        taps = range(math.floor(at - reach), math.ceil(at + reach) + 1)
        weights = [weight(abs(k - at) * shrink) for k in taps]
        y.append(math.fsum(w * x[min(max(k, 0), len(x) - 1)] for k, w in zip(taps, weights)) /
                 math.fsum(weights))
    return y


def linear(x):
    return max(1 - x, 0.0)


def cubic(x):
    a = -0.75
    if x <= 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a if x < 2 else 0.0


def add_resize(model, rng):
    """Resize from a few neighbours, and from many by a product with their weights."""
    x = numbers(rng, 7)
    line = model.input(onnx.DOUBLE, [1, 7], x)
    for mode, weight, reach in (('linear', linear, 1), ('cubic', cubic, 2)):
        for n, antialias in ((10, 0), (4, 0), (3, 1)):
            shrink = n / 7 if antialias else 1
            sizes = model.constant(onnx.INT64, [2], [1, n])
            model.node('Resize', [line, '', '', sizes], onnx.DOUBLE, [1, n],
                       interpolated(x, n, weight, reach / shrink, shrink), mode=mode,
                       antialias=antialias)


def add_rows(model, rng):
    """Operators along rows, for values beyond float32's range and precision."""
    x = [1e200, 1 + 2.0 ** -40, 1 + 2.0 ** -41, -3e150, 2.0 ** -600, 1.0]
    line = model.input(onnx.DOUBLE, [6], x)
    k = model.constant(onnx.INT64, [1], [3])
    axis = model.constant(onnx.INT64, [], [0])
    model.node('TopK', [line, k], onnx.DOUBLE, [3], [1e200, 1 + 2.0 ** -40, 1 + 2.0 ** -41],
               [(onnx.INT64, [3], [0, 1, 2])])
    model.node('TopK', [line, k], onnx.DOUBLE, [3], [-3e150, 2.0 ** -600, 1.0],
               [(onnx.INT64, [3], [3, 4, 5])], largest=0)
    model.node('ArgMax', [line], onnx.INT64, [1], [0])
    model.node('CumSum', [line, axis], onnx.DOUBLE, [6], [1e200] * 6)
    model.node('ReduceMax', [line], onnx.DOUBLE, [1], [1e200])
    model.node('ReduceSum', [line], onnx.DOUBLE, [1], [math.fsum(x)])
    for op, y in (('ReduceLogSumExp', math.log(math.fsum(math.exp(v) for v in (0.5, -0.25, 3)))),
                  ('ReduceL2', math.sqrt(9.3125)), ('ReduceProd', -0.375)):
        model.node(op, [model.input(onnx.DOUBLE, [3], [0.5, -0.25, 3])], onnx.DOUBLE, [1], [y])
    indices = model.constant(onnx.INT64, [2], [1, 1])
    updates = model.constant(onnx.DOUBLE, [2], [2.0 ** -45, 2.0 ** -44])
    model.node('ScatterElements', [line, indices, updates], onnx.DOUBLE, [6],
               [1e200, 1 + 2.0 ** -40 + 3 * 2.0 ** -45, *x[2:]], reduction='add')
    z = numbers(rng, 6)
    total = math.fsum(math.exp(v) for v in z)
    soft = model.input(onnx.DOUBLE, [2, 3], z)
    model.node('Flatten', [soft], onnx.DOUBLE, [1, 6], z, axis=0)
    flat = model.outputs[-1][0]
    model.node('Softmax', [flat], onnx.DOUBLE, [1, 6], [math.exp(v) / total for v in z])
    model.node('LogSoftmax', [flat], onnx.DOUBLE, [1, 6], [v - math.log(total) for v in z])
    model.node('LpNormalization', [flat], onnx.DOUBLE, [1, 6],
               [v / math.fsum(abs(w) for w in z) for v in z], p=1)


def add_products(model, rng):
    rows, k, columns = 5, 300, 7
    a, b, c = numbers(rng, rows * k), numbers(rng, k * columns), numbers(rng, columns)
    product = [math.fsum(a[r * k + i] * b[i * columns + j] for i in range(k))
               for r in range(rows) for j in range(columns)]
    turned = [b[i * columns + j] for j in range(columns) for i in range(k)]
    x = model.input(onnx.DOUBLE, [rows, k], a)
    model.node('MatMul', [x, model.constant(onnx.DOUBLE, [k, columns], b)], onnx.DOUBLE, [rows, columns], product)
    model.node('Gemm', [x, model.constant(onnx.DOUBLE, [columns, k], turned), model.input(onnx.DOUBLE, [columns], c)],
               onnx.DOUBLE, [rows, columns],
               [0.75 * value - 2.5 * c[i % columns] for i, value in enumerate(product)],
               transB=1, alpha=0.75, beta=-2.5)


def add_convolutions(model, rng):
    channels, filters, n, taps = 3, 4, 40, 5
    x, w, bias = numbers(rng, channels * n), numbers(rng, filters * channels * taps), numbers(rng, filters)
    wanted = [math.fsum([bias[f]] + [x[c * n + o * 2 + t - 2] * w[(f * channels + c) * taps + t]
                                     for c in range(channels) for t in range(taps) if 0 <= o * 2 + t - 2 < n])
              for f in range(filters) for o in range(n // 2)]
    inputs = [model.input(onnx.DOUBLE, [1, channels, n], x)]
    model.node('Conv', inputs + [model.constant(onnx.DOUBLE, [filters, channels, taps], w),
                                 model.constant(onnx.DOUBLE, [filters], bias)],
               onnx.DOUBLE, [1, filters, n // 2], wanted, strides=[2], pads=[2, 2])
    spread = [[bias[f] for _ in range(2 * n + 3)] for f in range(filters)]
    for f in range(filters):
        for c in range(channels):
            for i in range(n):
                for t in range(taps):
                    spread[f][2 * i + t] += x[c * n + i] * w[(f * channels + c) * taps + t]
    weights = [w[(f * channels + c) * taps + t] for c in range(channels) for f in range(filters) for t in range(taps)]
    model.node('ConvTranspose', inputs + [model.input(onnx.DOUBLE, [channels, filters, taps], weights),
                                          model.constant(onnx.DOUBLE, [filters], bias)],
               onnx.DOUBLE, [1, filters, 2 * n + 3], [value for each in spread for value in each], strides=[2])


def add_pools(model, rng):
    size, out = 9, 7
    x = numbers(rng, 2 * size * size)
    image = model.input(onnx.DOUBLE, [1, 2, size, size], x)
    windows = [[(c * size + y + i) * size + z + j for i in range(3) for j in range(3)]
               for c in range(2) for y in range(out) for z in range(out)]
    dims = [1, 2, out, out]
    best = [max(window, key=lambda i: x[i]) for window in windows]
    model.node('MaxPool', [image], onnx.DOUBLE, dims, [x[i] for i in best], more=((onnx.INT64, dims, best),),
               kernel_shape=[3, 3])
    model.node('MaxPool', [image], onnx.DOUBLE, dims, [x[i] for i in best], kernel_shape=[3, 3])
    model.node('AveragePool', [image], onnx.DOUBLE, dims,
               [math.fsum(x[i] for i in window) / 9 for window in windows], kernel_shape=[3, 3])
    model.node('LpPool', [image], onnx.DOUBLE, dims,
               [math.fsum(abs(x[i]) ** 3 for i in window) ** (1 / 3) for window in windows], kernel_shape=[3, 3], p=3)
    for p in (2, 3):
        model.node('GlobalLpPool', [image], onnx.DOUBLE, [1, 2, 1, 1],
                   [math.fsum(abs(value) ** p for value in x[c * size * size:(c + 1) * size * size]) ** (1 / p)
                    for c in range(2)], p=p)


def main():
    rng = random.Random(11)
    with private_folder('doubles-') as folder:
        model = Model(folder, 23)
        for part in (add_norms, add_training, add_windows, add_resize, add_rows, add_products, add_convolutions,
                     add_pools):
            part(model, rng)
        model.run('--atol=1e-13', '--rtol=1e-13')


main()
