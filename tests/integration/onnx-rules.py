#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Operators that the loader builds from others, by brokerctl run: their results on each device.

    onnx-rules.py BROKERCTL DEVICE

A few models have many nodes each; the test computes the expected outputs as ONNX's text says.
"""
import math
import random

import onnxfile as onnx
from onnxmodel import Model, private_folder


def add_mean_variance(model, rng):
    """Inputs are far from 0, where a difference of squares loses more precision than a mean of squared
    differences."""
    n, c, h, w = 3, 2, 4, 5
    x = [20 + rng.uniform(-1, 1) for _ in range(n * c * h * w)]
    name = model.input(onnx.FLOAT, [n, c, h, w], x)
    for axes in (None, [2, 3], [-3]):
        groups = {}
        wanted = [0.0] * len(x)
        reduced = {axis % 4 for axis in axes or [0, 2, 3]}
        for i in range(len(x)):
            place = (i // (c * h * w), i // (h * w) % c, i // w % h, i % w)
            groups.setdefault(tuple(p for k, p in enumerate(place) if k not in reduced), []).append(i)
        for members in groups.values():
            # The file has the values as float32.
            values = [round_to_float(x[i]) for i in members]
            mean = sum(values) / len(values)
            deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))
            for i, value in zip(members, values):
                wanted[i] = (value - mean) / (deviation + 1e-9)
        model.node('MeanVarianceNormalization', [name], onnx.FLOAT, [n, c, h, w],
                   [round(value, 7) for value in wanted], **({'axes': axes} if axes else {}))


def round_to_float(value):
    return onnx.struct.unpack('<f', onnx.struct.pack('<f', value))[0]


def add_lrn(model, rng):
    n, c, behind = 2, 7, 6
    x = [rng.uniform(-4, 4) for _ in range(n * c * behind)]
    for size, dims in ((5, [n, c, 2, 3]), (4, [n, c, behind]), (1, [n, c, behind]), (20, [n, c, 2, 3])):
        name = model.input(onnx.FLOAT, dims, x)
        before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
        wanted = []
        for i, value in enumerate(x):
            at = i // behind % c
            window = range(max(0, at - before), min(c, at + after + 1))
            squares = sum(x[i + (k - at) * behind] ** 2 for k in window)
            wanted.append(value / (1.5 + 0.25 / size * squares) ** 0.5)
        model.node('LRN', [name], onnx.FLOAT, dims, wanted, size=size, alpha=0.25, beta=0.5, bias=1.5)


def add_hardmax(model):
    rows = [[3, 1, 3, 2], [-1, -2, -1, -3], [0, 0, 0, 0]]
    for dtype in (onnx.FLOAT, onnx.FLOAT16):
        name = model.input(dtype, [3, 4], [float(value) for row in rows for value in row])
        model.node('Hardmax', [name], dtype, [3, 4],
                   [float(i == row.index(max(row))) for row in rows for i in range(4)])
        columns = list(zip(*rows))
        model.node('Hardmax', [name], dtype, [3, 4],
                   [float(i == columns[k].index(max(columns[k]))) for i in range(3) for k in range(4)],
                   axis=0)


def add_shrinks(model):
    values = [-2.0, -0.75, -0.5, 0.25, 0.5, 1.5, math.inf, -math.inf]
    name = model.input(onnx.FLOAT, [8], values)
    model.node('Shrink', [name], onnx.FLOAT, [8], [value if abs(value) > 0.5 else 0.0 for value in values])
    name = model.input(onnx.FLOAT16, [6], values[:6])
    model.node('Shrink', [name], onnx.FLOAT16, [6], [-1.5, 0.0, 0.0, 0.0, 0.0, 1.0], lambd=0.75, bias=0.5)
    name = model.input(onnx.INT8, [4], [-3, -1, 1, 2])
    model.node('Shrink', [name], onnx.INT8, [4], [-2, 0, 0, 1], lambd=1.5, bias=1.0)


def add_training(model, rng):
    """Batch normalisation in training: normalised by this batch, with updated running means."""
    n, c, h = 4, 3, 5
    x = [rng.uniform(-2, 3) for _ in range(n * c * h)]
    scale, bias, mean, variance = ([1.5, -2.0, 0.5], [0.5, 1.0, -1.0], [1.0, 2.0, 3.0], [0.5, 1.0, 2.0])
    wanted, means, variances = [0.0] * len(x), [], []
    for k in range(c):
        members = [i for i in range(len(x)) if i // h % c == k]
        now = sum(x[i] for i in members) / len(members)
        spread = sum((x[i] - now) ** 2 for i in members) / len(members)
        for i in members:
            wanted[i] = (x[i] - now) / math.sqrt(spread + 1e-3) * scale[k] + bias[k]
        means.append(mean[k] * 0.75 + now * 0.25)
        variances.append(variance[k] * 0.75 + spread * 0.25)
    inputs = [model.input(onnx.FLOAT, [n, c, h], x)]
    inputs += [model.input(onnx.FLOAT, [c], values) for values in (scale, bias, mean, variance)]
    model.node('BatchNormalization', inputs, onnx.FLOAT, [n, c, h], wanted,
               more=((onnx.FLOAT, [c], means), (onnx.FLOAT, [c], variances)),
               epsilon=1e-3, momentum=0.75, training_mode=1)
    model.node('Dropout', [inputs[0]], onnx.FLOAT, [n, c, h], x,
               more=((onnx.BOOL, [n, c, h], [1] * len(x)),))


def add_powers(model):
    """The result has the base's type, whatever the exponent's is."""
    base = model.input(onnx.FLOAT, [4], [2.0, 0.5, -3.0, 7.0])
    model.node('Pow', [base, model.input(onnx.INT64, [4], [3, 2, 3, 0])], onnx.FLOAT, [4],
               [8.0, 0.25, -27.0, 1.0])
    model.node('Pow', [base, model.constant(onnx.INT32, [], [2])], onnx.FLOAT, [4],
               [4.0, 0.25, 9.0, 49.0])
    half = model.input(onnx.FLOAT16, [3], [2.0, 9.0, 16.0])
    model.node('Pow', [half, model.constant(onnx.FLOAT, [], [0.5])], onnx.FLOAT16, [3],
               [math.sqrt(2), 3.0, 4.0])
    whole = model.input(onnx.INT32, [3], [4, 9, 2])
    model.node('Pow', [whole, model.input(onnx.FLOAT, [3], [0.5, 1.5, 2.5])], onnx.INT32, [3], [2, 27, 5])
    # The result is truncated to integers: an error of one bit below an integer changes the result.
    bases = [-58, -11, -3, 5, 7, 13, 29, 43]
    for power in (3, 4):
        model.node('Pow', [model.input(onnx.INT32, [8], bases), model.input(onnx.FLOAT, [1], [float(power)])],
                   onnx.INT32, [8], [base ** power for base in bases])
    model.node('Pow', [whole, model.input(onnx.INT64, [3], [3, 2, 30])], onnx.INT32, [3],
               [64, 81, 1 << 30])
    model.node('Pow', [model.input(onnx.INT64, [2], [3, -2]), model.input(onnx.INT32, [2], [39, 61])],
               onnx.INT64, [2], [3 ** 39, -2 ** 61])
    model.node('Pow', [whole, model.constant(onnx.UINT8, [1], [2])], onnx.INT32, [3], [16, 81, 4])


def add_clips(model):
    """Limits that no float32 can represent."""
    for dtype, bits, values in ((onnx.INT64, 64, [1 << 40, (1 << 40) + 3, -(1 << 53) - 7, 12]),
                                (onnx.INT32, 32, [1 << 30, (1 << 24) + 1, -(1 << 25) - 9, 12])):
        low, high = values[2] + 2, values[1]
        most = 2 ** (bits - 1) - 1
        given = [*values, high + 1, high - 1, low - 1, most, -most - 1]
        name = model.input(dtype, [9], given)
        limits = [model.constant(dtype, [], [limit]) for limit in (low, high)]
        model.node('Clip', [name, *limits], dtype, [9], [min(max(v, low), high) for v in given])
        model.node('Clip', [name, '', limits[1]], dtype, [9], [min(v, high) for v in given])
        model.node('Clip', [name, limits[0]], dtype, [9], [max(v, low) for v in given])
        model.node('Clip', [name, limits[1], limits[0]], dtype, [9], [low] * 9)
    small = model.input(onnx.INT8, [4], [-128, -5, 100, 127])
    model.node('Clip', [small, model.constant(onnx.INT8, [], [-5]), model.constant(onnx.INT8, [], [99])],
               onnx.INT8, [4], [-5, -5, 99, 99])


def add_known(model):
    """Operators that need constant inputs."""
    matrix = model.input(onnx.FLOAT, [3, 4], [float(i) for i in range(12)])
    model.node('EyeLike', [matrix], onnx.FLOAT, [3, 4], [float(i % 4 == i // 4 + 1) for i in range(12)], k=1)
    model.node('EyeLike', [matrix], onnx.INT64, [3, 4], [int(i % 4 == i // 4 - 2) for i in range(12)],
               k=-2, dtype=onnx.INT64)
    model.node('EyeLike', [matrix], onnx.BOOL, [3, 4], [0] * 12, k=9, dtype=onnx.BOOL)
    mask = model.input(onnx.INT32, [2, 3], [0, 5, 0, 1, 0, -1])
    model.node('NonZero', [mask], onnx.INT64, [2, 3], [0, 1, 1, 1, 0, 2])
    few = model.input(onnx.BOOL, [3], [0, 1, 1])
    model.node('Compress', [matrix, few], onnx.FLOAT, [3, 2], [1.0, 2.0, 5.0, 6.0, 9.0, 10.0], axis=1)
    model.node('Compress', [matrix, few], onnx.FLOAT, [2], [1.0, 2.0])
    none = model.constant(onnx.BOOL, [2], [0, 0])
    model.node('Compress', [matrix, none], onnx.FLOAT, [0, 4], [], axis=0)
    lengths = model.constant(onnx.INT64, [4], [1, 2, 3, 3])
    model.node('ReverseSequence', [matrix, lengths], onnx.FLOAT, [3, 4],
               [0.0, 5.0, 10.0, 11.0, 4.0, 1.0, 6.0, 7.0, 8.0, 9.0, 2.0, 3.0])
    lengths = model.constant(onnx.INT64, [3], [0, 4, 2])
    model.node('ReverseSequence', [matrix, lengths], onnx.FLOAT, [3, 4],
               [0.0, 1.0, 2.0, 3.0, 7.0, 6.0, 5.0, 4.0, 9.0, 8.0, 10.0, 11.0], batch_axis=0, time_axis=1)


def add_caches(model):
    """Keys of a new word or two are written to each sequence's cache, at that sequence's position."""
    batch, heads, room, new, width = 3, 2, 5, 2, 2
    cache = [float(i) for i in range(batch * heads * room * width)]
    update = [-1.0 - i for i in range(batch * heads * new * width)]
    inputs = [model.input(onnx.FLOAT, [batch, heads, room, width], cache),
              model.input(onnx.FLOAT, [batch, heads, new, width], update)]
    for first, mode in ((None, 'linear'), ([0, 3, 1], 'linear'), ([4, 3, 7], 'circular')):
        wanted = list(cache)
        for i, value in enumerate(update):
            sequence, head, word, at = (i // (heads * new * width), i // (new * width) % heads,
                                        i // width % new, i % width)
            place = ((first or [0] * batch)[sequence] + word) % room
            wanted[((sequence * heads + head) * room + place) * width + at] = value
        model.node('TensorScatter', inputs + ([model.input(onnx.INT64, [batch], first)] if first else []),
                   onnx.FLOAT, [batch, heads, room, width], wanted, mode=mode)
    flat = [model.input(onnx.FLOAT16, [2, 3], [0.0] * 6), model.input(onnx.FLOAT16, [2, 1], [1.0, 2.0]),
            model.constant(onnx.INT64, [2], [2, 0])]
    model.node('TensorScatter', flat, onnx.FLOAT16, [2, 3], [0.0, 0.0, 1.0, 2.0, 0.0, 0.0], axis=-1)


def add_denormals(model):
    """Denormals count as zero in computations on each device, and survive moves."""
    values = [1e-40, -1e-40, 0.0, 2e-39, -1.0]
    x = model.input(onnx.FLOAT, [5], values)
    model.node('Sign', [x], onnx.FLOAT, [5], [0.0, 0.0, 0.0, 0.0, -1.0])
    model.node('Cast', [x], onnx.BOOL, [5], [0, 0, 0, 0, 1], to=onnx.BOOL)
    model.node('Ceil', [x], onnx.FLOAT, [5], [0.0, 0.0, 0.0, 0.0, -1.0])
    model.node('Reciprocal', [x], onnx.FLOAT, [5], [math.inf, -math.inf, math.inf, math.inf, -1.0])
    zero = model.constant(onnx.FLOAT, [], [0.0])
    model.node('Equal', [x, zero], onnx.BOOL, [5], [1, 1, 1, 1, 0])
    model.node('Greater', [x, zero], onnx.BOOL, [5], [0, 0, 0, 0, 0])
    model.node('ArgMax', [x], onnx.INT64, [1], [0])
    model.node('TopK', [x, model.constant(onnx.INT64, [1], [5])], onnx.FLOAT, [5],
               [1e-40, -1e-40, 0.0, 2e-39, -1.0], more=((onnx.INT64, [5], [0, 1, 2, 3, 4]),))
    few = model.input(onnx.FLOAT, [2], values[:2])
    model.node('Log', [few], onnx.FLOAT, [2], [-math.inf] * 2)
    model.node('ReduceLogSum', [few], onnx.FLOAT, [1], [-math.inf])
    half = model.input(onnx.FLOAT16, [2], [6e-8, -6e-8])
    model.node('Sign', [half], onnx.FLOAT16, [2], [1.0, -1.0])


def add_attention(model, rng):
    """Products exceed float32's range, but are within it once they are scaled."""
    keys, width, values, large = 6, 12, 5, 3e19
    for rows in (1, 9):
        q, k = ([round_to_float(large * rng.uniform(-1, 1)) for _ in range(n * width)] for n in (rows, keys))
        v = [rng.uniform(-1, 1) for _ in range(keys * values)]
        scale = round_to_float(2e-38)
        wanted = []
        for i in range(rows):
            scores = [scale * sum(q[i * width + d] * k[j * width + d] for d in range(width))
                      for j in range(keys)]
            weights = [math.exp(score - max(scores)) for score in scores]
            wanted += [sum(w * v[j * values + d] for j, w in enumerate(weights)) / sum(weights)
                       for d in range(values)]
        model.node('Attention', [model.input(onnx.FLOAT, [1, 1, rows, width], q),
                                 model.input(onnx.FLOAT, [1, 1, keys, width], k),
                                 model.input(onnx.FLOAT, [1, 1, keys, values], v)],
                   onnx.FLOAT, [1, 1, rows, values], wanted, scale=scale)


def main():
    rng = random.Random(8)
    with private_folder('rules-') as folder:
        # A plan has at most 64 inputs and outputs.
        for add_all in ((lambda m: add_mean_variance(m, rng), lambda m: add_lrn(m, rng), add_hardmax,
                         add_shrinks, lambda m: add_training(m, rng)),
                        (add_powers, add_clips, add_known), (add_denormals,),
                        (add_caches, lambda m: add_attention(m, rng))):
            model = Model(folder, 24 if add_caches in add_all else 17)
            for add in add_all:
                add(model)
            model.run()


main()
