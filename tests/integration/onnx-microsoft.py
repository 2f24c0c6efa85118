#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""ONNX Runtime's own operators, and 8-bit convolutions of volumes, by brokerctl run.

    onnx-microsoft.py BROKERCTL DEVICE

A few models have many nodes each; the test computes the expected outputs as the operators'
documentation says.
"""
import functools
import itertools
import json
import math
import os
import random
import subprocess

import onnxfile as onnx
from onnxmodel import CTL, LIMIT, Model, expect, private_folder

DOMAIN = 'com.microsoft'
LIMITS = {onnx.UINT8: (0, 255), onnx.INT8: (-128, 127)}


def quantize(dtype, values, scale, zero):
    low, high = LIMITS[dtype]
    return [min(max(round(value / scale) + zero, low), high) for value in values]


class Bytes:
    """An array of bytes with a scale and a zero point, which may be omitted if it is 0."""

    def __init__(self, model, rng, dtype, dims, scale, zero, is_constant=False, declared=None):
        low, high = LIMITS[dtype]
        self.dtype, self.dims, self.scale, self.zero = dtype, dims, scale, zero
        self.values = [rng.randint(low, high) for _ in range(math.prod(dims))]
        self.floats = [(value - (zero or 0)) * scale for value in self.values]
        name = (model.constant(dtype, dims, self.values) if is_constant else
                model.input(dtype, dims, self.values, declared))
        self.inputs = [name, *scale_of(model, dtype, scale, zero)]


def scale_of(model, dtype, scale, zero):
    return [model.constant(onnx.FLOAT, [], [scale]), '' if zero is None else model.constant(dtype, [1], [zero])]


def put(model, op, inputs, dtype, dims, floats, scale, zero, is_first=False, **attributes):
    """Add a node whose expected output is @floats, quantized."""
    output = scale_of(model, dtype, scale, zero)
    inputs = [*output, *inputs] if is_first else [*inputs, *output]
    while not inputs[-1]:
        inputs.pop()
    model.node(op, inputs, dtype, dims, quantize(dtype, floats, scale, zero or 0), domain=DOMAIN, **attributes)


def add_elementwise(model, rng):
    for dtype, zeros in ((onnx.UINT8, (120, 7, 130)), (onnx.INT8, (-3, None, None)), (onnx.INT8, (None, 5, -9))):
        a = Bytes(model, rng, dtype, [2, 3, 4], 0.25, zeros[0])
        for dims in ([2, 3, 4], [4], [3, 1]):
            b = Bytes(model, rng, dtype, dims, 0.5, zeros[1], is_constant=True)
            other = b.floats if dims == [2, 3, 4] else [
                b.floats[i % 4 if dims == [4] else i // 4 % 3] for i in range(24)]
            for op, apply, scale in (('Add', lambda x, y: x + y, 1.0), ('Mul', lambda x, y: x * y, 16.0)):
                put(model, f'QLinear{op}', a.inputs + b.inputs, dtype, [2, 3, 4], map(apply, a.floats, other), scale,
                    zeros[2])
        put(model, 'QLinearSigmoid', a.inputs, dtype, [2, 3, 4], [1 / (1 + math.exp(-x)) for x in a.floats], 1 / 256,
            zeros[2])
        for alpha in (None, 0.25):
            slope = 0.01 if alpha is None else alpha
            put(model, 'QLinearLeakyRelu', a.inputs, dtype, [2, 3, 4], [x if x >= 0 else slope * x for x in a.floats],
                0.28125, zeros[2], **({} if alpha is None else {'alpha': alpha}))


def softmax(row):
    most = max(row)
    terms = [math.exp(value - most) for value in row]
    return [term / sum(terms) for term in terms]


def add_softmax(model, rng):
    x = Bytes(model, rng, onnx.UINT8, [2, 3, 4], 1 / 16, 128)
    rows = {4: [softmax(x.floats[i:i + 4]) for i in range(0, 24, 4)],
            12: [softmax(x.floats[i:i + 12]) for i in range(0, 24, 12)]}
    for size, more in ((4, {'opset': 13}), (4, {'opset': 13, 'axis': 2}), (12, {'opset': 12, 'axis': 1})):
        put(model, 'QLinearSoftmax', x.inputs, onnx.UINT8, [2, 3, 4], itertools.chain(*rows[size]), 1 / 256, 0, **more)


def add_pools(model, rng):
    n, c, h, w = 2, 3, 5, 6
    for dtype, zero in ((onnx.UINT8, 100), (onnx.INT8, -7)):
        for is_last in (0, 1):
            dims = [n, h, w, c] if is_last else [n, c, h, w]
            x = Bytes(model, rng, dtype, dims, 0.125, zero)

            def at(i, k, y, z, x=x, is_last=is_last):
                return x.floats[((i * h + y) * w + z) * c + k if is_last else ((i * c + k) * h + y) * w + z]
            means = [sum(at(i, k, y, z) for y in range(h) for z in range(w)) / (h * w)
                     for i in range(n) for k in range(c)]
            put(model, 'QLinearGlobalAveragePool', x.inputs, dtype, [n, 1, 1, c] if is_last else [n, c, 1, 1], means,
                0.0625, zero, channels_last=is_last)
            for counts in (0, 1):
                found = {}
                for i, k, y, z in itertools.product(range(n), range(c), range(3), range(6)):
                    window = [(2 * y + dy - 1, z + dz - 1) for dy in range(3) for dz in range(2)]
                    inside = [at(i, k, *place) for place in window if 0 <= place[0] < h and 0 <= place[1] < w]
                    found[i, k, y, z] = sum(inside) / (6 if counts else len(inside))
                out = [n, 3, 6, c] if is_last else [n, c, 3, 6]
                order = sorted(found, key=lambda p: (p[0], p[2], p[3], p[1]) if is_last else p)
                put(model, 'QLinearAveragePool', x.inputs, dtype, out, [found[place] for place in order], 0.11, zero,
                    channels_last=is_last, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 1, 1, 0],
                    count_include_pad=counts)


def add_concats(model, rng):
    parts = [Bytes(model, rng, onnx.UINT8, [2, columns, 2], scale, zero)
             for columns, scale, zero in ((1, 0.25, 10), (3, 0.5, 128), (2, 0.25, 0))]
    floats = []
    for i in range(2):
        for part in parts:
            size = 2 * part.dims[1]
            floats += part.floats[i * size:(i + 1) * size]
    put(model, 'QLinearConcat', sum((part.inputs for part in parts), []), onnx.UINT8, [2, 6, 2], floats, 0.5, 60,
        is_first=True, axis=1)


def add_gemms(model, rng):
    m, k, n = 4, 7, 5
    # Scales and zero points of B are per-tensor or per-column.
    for dtype, trans_a, trans_b, scaled, zeroed, has_bias, is_bytes, alpha in (
            (onnx.UINT8, 0, 0, False, False, True, True, None), (onnx.UINT8, 0, 1, True, True, True, True, 0.5),
            (onnx.INT8, 1, 0, True, True, False, True, None), (onnx.INT8, 0, 1, False, False, True, False, 0.5),
            (onnx.INT8, 1, 1, True, True, True, False, 2.0), (onnx.UINT8, 0, 0, True, False, True, True, None),
            (onnx.UINT8, 0, 1, True, False, False, False, 0.5), (onnx.INT8, 0, 0, False, True, True, False, None),
            (onnx.INT8, 1, 1, False, True, True, True, None)):
        a = Bytes(model, rng, dtype, [k, m] if trans_a else [m, k], 0.125, 3)
        scales = [0.0625 * (1 + i % 3) for i in range(n)] if scaled else [0.0625] * n
        zeros = [i - 2 for i in range(n)] if zeroed else [1] * n
        b = [rng.randint(-100, 100) for _ in range(k * n)]
        inputs = [*a.inputs, model.constant(onnx.INT8, [n, k] if trans_b else [k, n], b),
                  model.constant(onnx.FLOAT, [n] if scaled else [], scales if scaled else scales[:1]),
                  model.constant(onnx.INT8, [n] if zeroed else [], zeros if zeroed else zeros[:1])]
        bias = [rng.randint(-5000, 5000) if has_bias else 0 for _ in range(n)]
        inputs.append(model.constant(onnx.INT32, [n], bias) if has_bias else '')
        attributes = {'transA': trans_a, 'transB': trans_b, **({} if alpha is None else {'alpha': alpha})}
        floats = [(1.0 if alpha is None else alpha) * (
            sum(a.floats[q * m + i if trans_a else i * k + q] *
                (b[j * k + q if trans_b else q * n + j] - zeros[j]) * scales[j] for q in range(k)) +
            bias[j] * 0.125 * scales[j]) for i in range(m) for j in range(n)]
        if is_bytes:
            put(model, 'QGemm', inputs, dtype, [m, n], floats, 3.0, 4, **attributes)
        else:
            while not inputs[-1]:
                inputs.pop()
            model.node('QGemm', inputs, onnx.FLOAT, [m, n], floats, domain=DOMAIN, **attributes)


def numbers(rng, n):
    return [rng.randrange(-32, 33) / 16 for _ in range(n)]


def add_products(model, rng):
    batch, m, k, n = 2, 3, 4, 5
    a, b = numbers(rng, batch * m * k), numbers(rng, batch * k * n)
    for trans_a, trans_b, alpha in ((0, 0, 1.0), (1, 0, 0.5), (0, 1, -2.0), (1, 1, 0.125)):
        names = [model.input(onnx.FLOAT, [batch, k, m] if trans_a else [batch, m, k], a),
                 model.input(onnx.FLOAT, [batch, n, k] if trans_b else [batch, k, n], b)]
        wanted = [alpha * sum(a[p * m * k + (q * m + i if trans_a else i * k + q)] *
                              b[p * k * n + (j * k + q if trans_b else q * n + j)] for q in range(k))
                  for p in range(batch) for i in range(m) for j in range(n)]
        model.node('FusedMatMul', names, onnx.FLOAT, [batch, m, n], wanted, domain=DOMAIN, transA=trans_a,
                   transB=trans_b, alpha=alpha)


def add_activations(model, rng):
    x, bias = numbers(rng, 24), numbers(rng, 4)
    names = [model.input(onnx.FLOAT, [2, 3, 4], x), model.constant(onnx.FLOAT, [4], bias)]
    both = [value + bias[i % 4] for i, value in enumerate(x)]

    def exact(value):
        return value / 2 * (1 + math.erf(value / math.sqrt(2)))

    def fast(value):
        return value / 2 * (1 + math.tanh(0.7978845608 * (value + 0.044715 * value ** 3)))
    for op, values, n, function in (('Gelu', x, 1, exact), ('BiasGelu', both, 2, exact), ('FastGelu', x, 1, fast),
                                    ('FastGelu', both, 2, fast)):
        model.node(op, names[:n], onnx.FLOAT, [2, 3, 4], [function(value) for value in values], domain=DOMAIN)
    for more in ({}, {'alpha': 0.5}):
        model.node('QuickGelu', names[:1], onnx.FLOAT, [2, 3, 4],
                   [value / (1 + math.exp(-more.get('alpha', 1.702) * value)) for value in x], domain=DOMAIN, **more)


def add_norms(dtype, model, rng):
    rows, size, epsilon = 6, 8, 0.03125
    x, skip = numbers(rng, rows * size), numbers(rng, rows * size)
    gamma, beta, bias = (numbers(rng, size) for _ in range(3))
    full = [model.input(dtype, [2, 3, size], values) for values in (x, skip)]
    part = model.input(dtype, [3, size], skip[:3 * size])
    lists = [model.constant(dtype, [size], values) for values in (gamma, beta, bias)]
    for is_rms, given, has_beta, has_bias in itertools.product((0, 1), (0, 1), (0, 1), (0, 1)):
        if is_rms and has_beta:
            continue
        other = skip[:3 * size] * 2 if given else skip
        added = [a + b + (bias[i % size] if has_bias else 0) for i, (a, b) in enumerate(zip(x, other))]
        wanted, means, inverses = [], [], []
        for i in range(0, rows * size, size):
            row = added[i:i + size]
            mean = 0 if is_rms else sum(row) / size
            inverse = 1 / math.sqrt(sum((value - mean) ** 2 for value in row) / size + epsilon)
            means.append(mean)
            inverses.append(inverse)
            wanted += [(value - mean) * inverse * gamma[k] + (beta[k] if has_beta else 0)
                       for k, value in enumerate(row)]
        inputs = [full[0], part if given else full[1], lists[0]]
        if not is_rms:
            inputs.append(lists[1] if has_beta else '')
        if has_bias:
            inputs.append(lists[2])
        while not inputs[-1]:
            inputs.pop()
        statistics = (None, None) if is_rms or given else ((onnx.FLOAT, [2, 3, 1], means),
                                                           (onnx.FLOAT, [2, 3, 1], inverses))
        model.node('SkipSimplifiedLayerNormalization' if is_rms else 'SkipLayerNormalization', inputs, dtype,
                   [2, 3, size], wanted, more=(*statistics, (dtype, [2, 3, size], added)), domain=DOMAIN,
                   epsilon=epsilon)
    roots = [math.sqrt(sum(value * value for value in x[i:i + size]) / size + epsilon)
             for i in range(0, rows * size, size)]
    for domain in ('', DOMAIN):
        model.node('SimplifiedLayerNormalization', [full[0], lists[0]], dtype, [2, 3, size],
                   [value / roots[i // size] * gamma[i % size] for i, value in enumerate(x)],
                   domain=domain, epsilon=epsilon, axis=-1)


def add_attention(model, rng):
    batch, heads, size, queries, keys, past = 2, 2, 4, 3, 5, 2
    hidden = heads * size
    for has_bias, has_mask, has_past, is_causal, scale in (
            (0, 0, 0, 0, None), (1, 1, 0, 0, None), (1, 1, 1, 0, 0.25), (0, 0, 0, 1, None)):
        n_keys, before = (queries if is_causal else keys), (past if has_past else 0)
        given = [numbers(rng, batch * n * hidden) for n in (queries, n_keys, n_keys)]
        bias = numbers(rng, 3 * hidden)
        mask = numbers(rng, heads * queries * (before + n_keys))
        cache = [numbers(rng, batch * heads * past * size) for _ in range(2)]
        inputs = [model.input(onnx.FLOAT, [batch, n, hidden], values)
                  for n, values in zip((queries, n_keys, n_keys), given)]
        inputs += [model.constant(onnx.FLOAT, [3 * hidden], bias) if has_bias else '', '',
                   model.input(onnx.FLOAT, [1, heads, queries, before + n_keys], mask) if has_mask else '']
        if has_past:
            inputs += [model.input(onnx.FLOAT, [batch, heads, past, size], values) for values in cache]

        def row(which, b, i, h, given=given, bias=bias, has_bias=has_bias, n=(queries, n_keys, n_keys)):
            at = (b * n[which] + i) * hidden + h * size
            return [given[which][at + e] + (bias[which * hidden + h * size + e] if has_bias else 0)
                    for e in range(size)]
        present = [[], []]
        wanted = [0.0] * (batch * queries * hidden)
        for b, h in itertools.product(range(batch), range(heads)):
            both = []
            for which in (1, 2):
                old = [cache[which - 1][((b * heads + h) * past + i) * size:][:size] for i in range(before)]
                both.append(old + [row(which, b, i, h) for i in range(n_keys)])
                present[which - 1] += sum(both[-1], [])
            for i in range(queries):
                query = row(0, b, i, h)
                scores = [sum(map(lambda x, y: x * y, query, key)) * (scale or 1 / math.sqrt(size)) for key in both[0]]
                if has_mask:
                    scores = [score + mask[(h * queries + i) * len(scores) + j] for j, score in enumerate(scores)]
                if is_causal:
                    scores = scores[:i + 1]
                for share, value in zip(softmax(scores), both[1]):
                    for e in range(size):
                        wanted[(b * queries + i) * hidden + h * size + e] += share * value[e]
        while not inputs[-1]:
            inputs.pop()
        shape = [batch, heads, before + n_keys, size]
        model.node('MultiHeadAttention', inputs, onnx.FLOAT, [batch, queries, hidden], wanted,
                   more=((onnx.FLOAT, shape, present[0]), (onnx.FLOAT, shape, present[1])) if has_past else (),
                   domain=DOMAIN, num_heads=heads, unidirectional=is_causal,
                   **({} if scale is None else {'scale': scale}))


def pack(values, bits, per_row):
    out, per_byte = [], 8 // bits
    for i in range(0, len(values), per_row):
        row = values[i:i + per_row] + [0] * (-per_row % per_byte)
        out += [sum(value << bits * k for k, value in enumerate(row[j:j + per_byte]))
                for j in range(0, len(row), per_byte)]
    return out


def add_narrow_weights(model, rng):
    rows, k, n, block = 3, 40, 6, 16
    blocks = -(-k // block)
    a = numbers(rng, rows * k)
    name = model.input(onnx.FLOAT, [rows, k], a)
    for bits, has_zeros, has_groups, has_bias in ((8, 0, 0, 0), (8, 1, 0, 1), (2, 0, 0, 1), (2, 1, 0, 0), (4, 1, 1, 1),
                                                  (8, 0, 1, 0), (2, 1, 1, 0), (4, 0, 1, 0)):
        weights = [rng.randrange(1 << bits) for _ in range(n * blocks * block)]
        scales = [rng.randrange(1, 9) / 64 for _ in range(n * blocks)]
        zeros = [rng.randrange(1 << bits) if has_zeros else 1 << bits - 1 for _ in range(n * blocks)]
        groups = [rng.randrange(blocks) if has_groups else q // block for q in range(k)]
        bias = numbers(rng, n) if has_bias else [0] * n
        inputs = [name, model.constant(onnx.UINT8, [n, blocks, block * bits // 8], pack(weights, bits, blocks * block)),
                  model.constant(onnx.FLOAT, [n * blocks], scales)]
        packed = pack(zeros, bits, blocks)
        inputs.append(model.constant(onnx.UINT8, [len(packed)], packed) if has_zeros else '')
        inputs.append(model.constant(onnx.INT32, [k], groups) if has_groups else '')
        inputs.append(model.constant(onnx.FLOAT, [n], bias) if has_bias else '')
        while not inputs[-1]:
            inputs.pop()
        wanted = [bias[j] + sum(a[i * k + q] * (weights[j * blocks * block + q] - zeros[j * blocks + groups[q]]) *
                                scales[j * blocks + groups[q]] for q in range(k))
                  for i in range(rows) for j in range(n)]
        model.node('MatMulNBits', inputs, onnx.FLOAT, [rows, n], wanted, domain=DOMAIN, K=k, N=n, bits=bits,
                   block_size=block)


def convolve(x, x_dims, x_zero, w, w_dims, w_zeros, group, strides, dilations, pads, out):
    """Return the sums of (x - zero) (w - zero), in order."""
    _, c, *sizes = x_dims
    m, per_group, *kernel = w_dims
    found = []
    for b, o, *place in itertools.product(range(x_dims[0]), range(m), *map(range, out)):
        total = 0
        for i, *tap in itertools.product(range(per_group), *map(range, kernel)):
            at = [p * s + t * d - before for p, s, t, d, before in zip(place, strides, tap, dilations, pads)]
            if all(0 <= position < size for position, size in zip(at, sizes)):
                channel = o // (m // group) * per_group + i
                x_at, w_at = b * c + channel, o * per_group + i
                for position, size, t, k in zip(at, sizes, tap, kernel):
                    x_at, w_at = x_at * size + position, w_at * k + t
                total += (x[x_at] - x_zero) * (w[w_at] - w_zeros[o])
        found.append(total)
    return found


def add_volumes(model, rng):
    for dtype, w_dims, group, strides, dilations, pads, out, more in (
            (onnx.UINT8, [4, 3, 2, 3, 2], 1, [1, 1, 1], [1, 1, 1], [0] * 6, [3, 3, 5], {}),
            (onnx.INT8, [4, 3, 2, 3, 2], 1, [2, 1, 2], [1, 2, 1], [1, 2, 0, 0, 1, 1], [2, 4, 3], {}),
            (onnx.UINT8, [6, 1, 3, 2, 1], 3, [1, 2, 1], [1, 1, 1], [1, 0, 2, 1, 1, 0], [4, 3, 8], {}),
            (onnx.UINT8, [2, 3, 2, 2, 3], 1, [1, 2, 2], [1, 1, 1], [1, 1, 1], [4, 3, 3], {'auto_pad': 'SAME_LOWER'})):
        dims = [2, 3, 4, 5, 6]
        x = Bytes(model, rng, dtype, dims, 0.25, 5, declared=['rows', *dims[1:]])
        w = [rng.randint(-20, 20) for _ in range(math.prod(w_dims))]
        m = w_dims[0]
        zeros = [k % 3 - 1 for k in range(m)]
        scales = [0.125 * (1 + k % 2) for k in range(m)]
        bias = [rng.randint(-500, 500) for _ in range(m)]
        attributes = {'group': group, 'strides': strides, 'dilations': dilations,
                      **(more or {'pads': pads, 'kernel_shape': w_dims[2:]})}
        sums = convolve(x.values, dims, 5, w, w_dims, zeros, group, strides, dilations, pads, out)
        size = math.prod(out)
        w_name, w_zero = model.constant(onnx.INT8, w_dims, w), model.constant(onnx.INT8, [m], zeros)
        model.node('ConvInteger', [x.inputs[0], w_name, x.inputs[2], w_zero], onnx.INT32, [2, m, *out], sums,
                   **attributes)
        floats = [(total + bias[i // size % m]) * 0.25 * scales[i // size % m] for i, total in enumerate(sums)]
        model.node('QLinearConv', [*x.inputs, w_name, model.constant(onnx.FLOAT, [m], scales), w_zero,
                                   *scale_of(model, dtype, 2.0, -4 if dtype == onnx.INT8 else 90),
                                   model.constant(onnx.INT32, [m], bias)], dtype, [2, m, *out],
                   quantize(dtype, floats, 2.0, -4 if dtype == onnx.INT8 else 90), **attributes)


def check_refusals(folder):
    """Each refusal names the unsupported form."""
    f, u8 = onnx.FLOAT, onnx.UINT8
    scale = (f, [])
    for op, inputs, attributes, says in (
            ('FusedMatMul', [(f, [2, 3, 4]), (f, [2, 4, 5])], {'transBatchA': 1}, 'attribute "transBatchA" must be 0'),
            ('FusedMatMul', [(f, [2, 3, 4]), (f, [2, 4, 5])], {'transBatchB': 1}, 'attribute "transBatchB" must be 0'),
            ('FusedMatMul', [(f, [2, 3]), (f, [3, 5])], {'beta': 1.0}, 'attribute "beta" is not known'),
            ('QLinearAdd', [(u8, [4]), scale, (u8, []), (u8, [4]), scale, (u8, []), None, (u8, [])], {}, 'input 6, a scale'),
            ('QLinearAdd', [(u8, [4]), (f, [4]), (u8, [4]), (u8, [4]), scale, (u8, []), scale], {}, 'expected one element'),
            ('QLinearMul', [(f, [4]), scale, (u8, []), (u8, [4]), scale, (u8, []), scale], {}, 'is float32, expected uint8'),
            ('QLinearSoftmax', [(u8, [2, 4]), scale, (u8, []), scale], {}, 'attribute "opset" is 0'),
            ('QLinearConcat', [scale, (u8, []), (u8, [2, 4]), scale, (u8, [])], {}, 'attribute "axis" is missing'),
            ('QLinearConcat', [scale, (u8, []), (u8, [2, 4]), scale, (u8, []), (u8, [2, 4])], {'axis': 1}, 'a scale, is missing'),
            ('QLinearAveragePool', [(u8, [1, 2, 8]), scale, (u8, []), scale], {'kernel_shape': [2], 'dilations': [2]},
             'attribute "dilations" is not known'),
            ('QGemm', [(u8, [2, 3]), scale, (u8, []), (u8, [3, 4]), scale, (u8, []), (f, [4])], {}, 'expected int32'),
            ('BiasGelu', [(f, [2, 3]), (f, [1, 3])], {}, 'expected one dimension'),
            ('SkipLayerNormalization', [(f, [2, 3]), (f, [2, 3]), (f, [2])], {}, 'one element for each of the last'),
            ('SkipLayerNormalization', [(f, [1, 3]), (f, [2, 3]), (f, [3])], {}, 'expected one that is added'),
            ('MultiHeadAttention', [(f, [1, 2, 8]), (f, [1, 4, 8]), (f, [1, 4, 8])], {'num_heads': 2, 'unidirectional': 1},
             'attribute "unidirectional"'),
            ('MultiHeadAttention', [(f, [1, 2, 8]), (f, [1, 4, 8]), (f, [1, 4, 8]), None, (onnx.INT32, [1])], {'num_heads': 2},
             'key_padding_mask, is given'),
            ('MultiHeadAttention', [(f, [1, 2, 2, 3, 4]), (f, [1, 4, 8]), (f, [1, 4, 8])], {'num_heads': 2}, 'the query'),
            ('MatMulNBits', [(f, [2, 32]), (u8, [3, 2, 16]), (f, [6])], {'K': 32, 'N': 3, 'bits': 8, 'block_size': 16},
             'input "in1" (B) must be known'),
            ('MatMulNBits', [(f, [2, 32]), (u8, [3, 2, 6]), (f, [6])], {'K': 32, 'N': 3, 'bits': 3, 'block_size': 16}, 'it has 3 bits'),
            ('QLinearWhere', [(onnx.BOOL, [2])], {}, 'there is no such operator'),
            ('GroupQueryAttention', [(f, [1, 2, 8])], {'num_heads': 2}, 'there is no such operator'),
            ('Attention', [(f, [1, 2, 8])], {'num_heads': 2},
             "ONNX's own Attention, whose nodes name no domain, is another operator"),
            ('com.microsoft.Gelu', [(f, [2])], {}, 'op_type must be "Gelu", without the domain'),
            ('EmbedLayerNormalization', [(onnx.INT32, [1, 2])], {}, 'there is no such operator'),
            ('QLinearSum', [(u8, [2])], {}, 'did you mean com.microsoft.QLinearMul?'),
            ('Relu', [(f, [2])], {}, "ONNX's own Relu, whose nodes name no domain")):
        names = [f'in{i}' if each else '' for i, each in enumerate(inputs)]
        model = onnx.write(os.path.join(folder, 'refused.onnx'), onnx.model(
            [onnx.call(DOMAIN, op, names, ['y'], 'node', **attributes)],
            [(name, *each) for name, each in zip(names, inputs) if each], [('y', f, ['n'])], domains=[DOMAIN]))
        result = subprocess.run([CTL, 'run', '--check', '--json', model], stdout=subprocess.PIPE, text=True,
                                stderr=subprocess.PIPE, timeout=LIMIT, check=False)
        reasons = [each['reason'] for each in json.loads(result.stdout)['refusals']]
        expect(result.returncode == 2 and any(says in reason for reason in reasons), op, attributes, reasons, says)


def main():
    rng = random.Random(11)
    with private_folder('microsoft-') as folder:
        check_refusals(folder)
        for number, (adds, options) in enumerate((
                ((add_elementwise, add_softmax, add_pools, add_concats), []), ((add_gemms,), []),
                ((add_products, add_activations, add_attention, add_narrow_weights), ['--rtol=2e-5']),
                ((functools.partial(add_norms, onnx.FLOAT),), ['--rtol=2e-5']),
                ((functools.partial(add_norms, onnx.FLOAT16),), ['--rtol=2e-3', '--atol=2e-3']), ((add_volumes,), []))):
            inner = os.path.join(folder, str(number))
            os.mkdir(inner)
            model = Model(inner, 17)
            for add in adds:
                add(model, rng)
            model.run(*options)
            # Without optimisations devices compute constant nodes, too.
            model.run('--disable-optimisation=all', *options)


main()
