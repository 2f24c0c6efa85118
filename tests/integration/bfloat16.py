#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Models in bfloat16, by brokerctl run: their results on each device, and the files that are rejected.

    bfloat16.py BROKERCTL DEVICE

The test computes the expected outputs in double precision and rounds them after each node.
"""
import math
import os
import random
import struct

import onnxfile as onnx
from onnxfile import BFLOAT16
from onnxmodel import Model, array_file, expect, private_folder, run


def convolve(x, w, bias, n_in, n_out, size):
    """Convolve with a 3x3 window and padding 1."""
    out = []
    for o in range(n_out):
        for row in range(size):
            for column in range(size):
                total = bias[o]
                for c in range(n_in):
                    for i in range(3):
                        for j in range(3):
                            y, z = row + i - 1, column + j - 1
                            if 0 <= y < size and 0 <= z < size:
                                total += w[((o * n_in + c) * 3 + i) * 3 + j] * x[(c * size + y) * size + z]
                out.append(total)
    return out


def multiply(a, b, rows, inner, columns):
    return [sum(a[i * inner + k] * b[k * columns + j] for k in range(inner))
            for i in range(rows) for j in range(columns)]


def normalise(x, scale, bias, rows, columns):
    out = []
    for row in (x[i * columns:(i + 1) * columns] for i in range(rows)):
        mean = sum(row) / columns
        deviation = math.sqrt(sum((value - mean) ** 2 for value in row) / columns + 1e-5)
        out += [(value - mean) / deviation * s + b for value, s, b in zip(row, scale, bias)]
    return out


def softmax(x, rows, columns):
    out = []
    for row in (x[i * columns:(i + 1) * columns] for i in range(rows)):
        powers = [math.exp(value - max(row)) for value in row]
        out += [power / sum(powers) for power in powers]
    return out


def transposed(x, rows, columns):
    return [x[i * columns + j] for j in range(columns) for i in range(rows)]


def check_network(folder, rng):
    """A window, a product, a norm and a softmax, with activations and moves in between."""
    def numbers(n):
        return [onnx.bfloat16_value(onnx.bfloat16_bits(rng.uniform(-1.0, 1.0))) for _ in range(n)]

    def constant(dims, values):
        return model.constant(BFLOAT16, dims, values)

    def add(op, *inputs, dims, values, **attributes):
        return model.node(op, inputs, BFLOAT16, dims, values, **attributes)

    model = Model(folder, 23)
    n_in, n_out, size, columns = 5, 8, 12, 40
    pixels = size * size
    x, w, bias = numbers(n_in * pixels), numbers(n_out * n_in * 9), numbers(n_out)
    at = model.input(BFLOAT16, [1, n_in, size, size], x)
    at, x = add('Conv', at, constant([n_out, n_in, 3, 3], w), constant([n_out], bias), dims=[1, n_out, size, size],
                values=convolve(x, w, bias, n_in, n_out, size), pads=[1, 1, 1, 1])
    at, x = add('Relu', at, dims=[1, n_out, size, size], values=[max(value, 0.0) for value in x])
    at, x = add('Flatten', at, dims=[n_out, pixels], values=x, axis=2)
    at, x = add('Transpose', at, dims=[pixels, n_out], values=transposed(x, n_out, pixels))
    w = numbers(n_out * columns)
    at, x = add('MatMul', at, constant([n_out, columns], w), dims=[pixels, columns],
                values=multiply(x, w, pixels, n_out, columns))
    w = numbers(columns)
    at, x = add('Add', at, constant([columns], w), dims=[pixels, columns],
                values=[value + w[i % columns] for i, value in enumerate(x)])
    w, bias = numbers(columns), numbers(columns)
    at, x = add('LayerNormalization', at, constant([columns], w), constant([columns], bias), dims=[pixels, columns],
                values=normalise(x, w, bias, pixels, columns))
    at, x = add('Gelu', at, dims=[pixels, columns],
                values=[0.5 * value * (1 + math.erf(value / math.sqrt(2))) for value in x])
    at, x = add('Softmax', at, dims=[pixels, columns], values=softmax(x, pixels, columns), axis=1)
    add('ReduceMax', at, dims=[pixels, 1], values=[max(x[i * columns:(i + 1) * columns]) for i in range(pixels)],
        axes=[1])
    # Elements in the middle of the chain may be off by an ulp; sums of such elements are off by more.
    path = model.run('--atol=0.03', '--rtol=0.03')
    model.run('--atol=0.03', '--rtol=0.03', '--disable-optimisation=all')
    return path


def check_casts(folder):
    """Casts are exact to the bit: ties and their neighbours, denormals, infinities and overflow."""
    bits = [0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff, 0x7f7fffff, 0x7f7f7fff, 0x7f7f8000,
            0xff800000, 0x7f800000, 0x00000001, 0x00008000, 0x00018000, 0x807fffff, 0x80000000]
    values = [struct.unpack('<f', struct.pack('<I', each))[0] for each in bits]
    n = len(values)
    narrow = [onnx.bfloat16_value(b) for b in (0x3f80, 0x3f82, 0x3f81, 0x3f80, 0x7f80, 0x7f7f, 0x7f80,
                                               0xff80, 0x7f80, 0x0000, 0x0000, 0x0002, 0x8080, 0x8000)]
    model = Model(folder, 23)
    at = model.input(onnx.FLOAT, [n], values)
    at, _ = model.node('Cast', [at], BFLOAT16, [n], narrow, to=BFLOAT16)
    model.node('Cast', [at], onnx.FLOAT, [n], narrow, to=onnx.FLOAT)
    small = [1.0, -2.5, 300.0, -1e9, math.inf, -math.inf]
    at = model.input(BFLOAT16, [len(small)], small)
    model.node('Cast', [at], onnx.INT8, [len(small)], [1, -2, 127, -128, 127, -128], to=onnx.INT8)
    model.node('Cast', [at], onnx.BOOL, [len(small)], [1, 1, 1, 1, 1, 1], to=onnx.BOOL)
    model.run('--atol=0', '--rtol=0')


def check_files(folder, path):
    """brokerctl reports that .npy cannot hold bfloat16, before and after a run."""
    values = [0.5] * 720
    array = onnx.npy(os.path.join(folder, 'x.npy'), onnx.FLOAT, [1, 5, 12, 12], values)
    result = run(path, f'--input={array}')
    expect(result.returncode == 2 and 'bfloat16 is given as a TensorProto in a .pb file' in result.stdout,
           'float32 for bfloat16:', result.returncode, result.stdout)
    short = onnx.write(os.path.join(folder, 'short.pb'),
                       onnx.tensor('x', BFLOAT16, [1, 5, 12, 12], [1.0] * 719))
    result = run(path, f'--input={short}')
    expect(result.returncode == 2 and 'bfloat16' in result.stdout, 'cut short:', result.returncode,
           result.stdout)
    whole = array_file(folder, 'whole', BFLOAT16, [1, 5, 12, 12], values)
    out = os.path.join(folder, 'y')
    result = run(path, f'--input={whole}', f'--output=out1_Relu={out}.npy')
    expect(result.returncode == 2 and 'a .npy file cannot hold bfloat16' in result.stdout, 'as .npy:',
           result.returncode, result.stdout)
    result = run(path, f'--input={whole}', f'--output=out1_Relu={out}.pb')
    expect(result.returncode == 0, 'as .pb:', result.stdout)
    with open(f'{out}.pb', 'rb') as file:
        contents = file.read()
    expect(contents.startswith(b'\x08\x01\x08\x08\x08\x0c\x08\x0c\x10\x10'), 'header', contents[:16])


def main():
    with private_folder('bfloat16-') as folder:
        check_casts(folder)
        check_files(folder, check_network(folder, random.Random(16)))


main()
