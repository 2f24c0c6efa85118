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
import subprocess
import sys
import tempfile

import onnxfile as onnx

from started import expect

CTL, DEVICE = os.path.abspath(sys.argv[1]), sys.argv[2]
LIMIT = 120 * int(os.environ.get('RBK_TEST_SLOW', '1'))
BFLOAT16 = onnx.BFLOAT16


def run(model, *arguments):
    return subprocess.run([CTL, 'run', model, '--device', DEVICE, *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False)


def bits_of(value):
    """Return the bits of the nearest bfloat16, rounding ties to even."""
    bits = struct.unpack('<I', struct.pack('<f', value))[0]
    if math.isnan(value):
        return bits >> 16 | 0x40
    return bits + 0x7fff + (bits >> 16 & 1) >> 16


def value_of(bits):
    return struct.unpack('<f', struct.pack('<I', bits << 16))[0]


def rounded(values):
    return [value_of(bits_of(value)) for value in values]


def file_of(folder, name, dtype, dims, values):
    """Write a TensorProto file, because .npy has no bfloat16."""
    if dtype == BFLOAT16:
        values = [bits_of(value) for value in values]
    return onnx.write(os.path.join(folder, f'{name}.pb'), onnx.tensor(name, dtype, dims, values))


class Model:
    """A chain of nodes, and the expected output of each node."""

    def __init__(self, folder):
        self.folder = folder
        self.nodes, self.inputs, self.outputs, self.constants, self.arguments = [], [], [], [], []

    def input(self, dims, values):
        name = f'in{len(self.inputs)}'
        self.inputs.append((name, BFLOAT16, dims))
        self.arguments.append(f'--input={name}={file_of(self.folder, name, BFLOAT16, dims, values)}')
        return name

    def constant(self, dims, values):
        name = f'constant{len(self.constants)}'
        self.constants.append(onnx.tensor(name, BFLOAT16, dims, [bits_of(value) for value in values]))
        return name

    def node(self, op, inputs, dims, values, dtype=BFLOAT16, **attributes):
        """Return the node's output name and its expected values, rounded."""
        name = f'out{len(self.outputs)}_{op}'
        self.nodes.append(onnx.node(op, inputs, [name], name, **attributes))
        self.outputs.append((name, dtype, dims))
        self.arguments.append(f'--expect={name}={file_of(self.folder, name, dtype, dims, values)}')
        return name, rounded(values)

    def run(self, *arguments):
        path = onnx.write(os.path.join(self.folder, 'model.onnx'),
                          onnx.model(self.nodes, self.inputs, self.outputs, self.constants, 23))
        result = run(path, *self.arguments, *arguments)
        expect(result.returncode == 0, DEVICE, 'ended with', result.returncode, result.stdout)
        return path


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
    def numbers(n, scale=1.0):
        return rounded([rng.uniform(-scale, scale) for _ in range(n)])

    model = Model(folder)
    n_in, n_out, size, columns = 5, 8, 12, 40
    pixels = size * size
    x, w, bias = numbers(n_in * pixels), numbers(n_out * n_in * 9), numbers(n_out)
    at = model.input([1, n_in, size, size], x)
    at, x = model.node('Conv', [at, model.constant([n_out, n_in, 3, 3], w), model.constant([n_out], bias)],
                       [1, n_out, size, size], convolve(x, w, bias, n_in, n_out, size), pads=[1, 1, 1, 1])
    at, x = model.node('Relu', [at], [1, n_out, size, size], [max(value, 0.0) for value in x])
    at, x = model.node('Flatten', [at], [n_out, pixels], x, axis=2)
    at, x = model.node('Transpose', [at], [pixels, n_out], transposed(x, n_out, pixels))
    w = numbers(n_out * columns)
    at, x = model.node('MatMul', [at, model.constant([n_out, columns], w)], [pixels, columns],
                       multiply(x, w, pixels, n_out, columns))
    w = numbers(columns)
    at, x = model.node('Add', [at, model.constant([columns], w)], [pixels, columns],
                       [value + w[i % columns] for i, value in enumerate(x)])
    w, bias = numbers(columns), numbers(columns)
    at, x = model.node('LayerNormalization', [at, model.constant([columns], w), model.constant([columns], bias)],
                       [pixels, columns], normalise(x, w, bias, pixels, columns))
    at, x = model.node('Gelu', [at], [pixels, columns],
                       [0.5 * value * (1 + math.erf(value / math.sqrt(2))) for value in x])
    at, x = model.node('Softmax', [at], [pixels, columns], softmax(x, pixels, columns), axis=1)
    at, x = model.node('ReduceMax', [at], [pixels, 1], [max(x[i * columns:(i + 1) * columns])
                                                        for i in range(pixels)], axes=[1])
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
    narrow = [value_of(b) for b in (0x3f80, 0x3f82, 0x3f81, 0x3f80, 0x7f80, 0x7f7f, 0x7f80,
                                    0xff80, 0x7f80, 0x0000, 0x0000, 0x0002, 0x8080, 0x8000)]
    model = Model(folder)
    model.inputs.append(('f', onnx.FLOAT, [n]))
    model.arguments.append(f'--input=f={file_of(folder, "f", onnx.FLOAT, [n], values)}')
    at, _ = model.node('Cast', ['f'], [n], narrow, to=BFLOAT16)
    model.node('Cast', [at], [n], narrow, onnx.FLOAT, to=onnx.FLOAT)
    small = [1.0, -2.5, 300.0, -1e9, math.inf, -math.inf]
    at = model.input([len(small)], small)
    model.node('Cast', [at], [len(small)], [1, -2, 127, -128, 127, -128], onnx.INT8, to=onnx.INT8)
    model.node('Cast', [at], [len(small)], [1, 1, 1, 1, 1, 1], onnx.BOOL, to=onnx.BOOL)
    model.run('--atol=0', '--rtol=0')


def check_files(folder, path):
    """brokerctl reports that .npy cannot hold bfloat16, before and after a run."""
    values = [0.5] * 720
    array = onnx.npy(os.path.join(folder, 'x.npy'), onnx.FLOAT, [1, 5, 12, 12], values)
    result = run(path, f'--input={array}')
    expect(result.returncode == 2 and 'bfloat16 is given as a TensorProto in a .pb file' in result.stdout,
           'float32 for bfloat16:', result.returncode, result.stdout)
    short = onnx.write(os.path.join(folder, 'short.pb'),
                       onnx.tensor('x', BFLOAT16, [1, 5, 12, 12], [0x3f80] * 719))
    result = run(path, f'--input={short}')
    expect(result.returncode == 2 and 'bfloat16' in result.stdout, 'cut short:', result.returncode,
           result.stdout)
    whole = file_of(folder, 'whole', BFLOAT16, [1, 5, 12, 12], values)
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
    rng = random.Random(16)
    with tempfile.TemporaryDirectory() as folder:
        check_casts(folder)
        path = check_network(folder, rng)
        check_files(folder, path)


main()
