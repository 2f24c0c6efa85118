#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fused models: the loader merges the nodes that exporters write, with the same results.

    fused-models.py BROKERCTL BROKERD SEED DEVICE...

DEVICE: cpu, gpu. Each pattern runs over random shapes, first unfused (--disable-optimisation=all) on
the CPU, then fused on every device, and the results must agree; --profile shows the fusion. A pattern
whose intermediate tensor has another reader must not be fused.
"""
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile

import onnxfile as onnx
from started import start_broker

CTL, BROKERD, SEED = sys.argv[1:4]
DEVICES = sys.argv[4:]
LIMIT = 120 * int(os.environ.get('RBK_TEST_SLOW', '1'))
ROUNDS = 3


def fail(*what):
    print('fused-models.py:', *what)
    sys.exit(1)


class Graph:
    """Nodes, added by methods that return the name of the node's output, and constants."""

    def __init__(self, rng):
        self.rng = rng
        self.nodes, self.constants, self.inputs = [], [], []
        self.middle = None  # tensor that the fused model no longer has

    def input(self, dims, rows):
        name = f'x{len(self.inputs)}'
        self.inputs.append((name, dims, [rows if isinstance(dim, str) else dim for dim in dims]))
        return name

    def constant(self, dims, values=None, dtype=onnx.FLOAT):
        name = f'c{len(self.constants)}'
        if values is None:
            values = [self.rng.uniform(0.25, 2) * self.rng.choice([-1, 1]) for _ in range(math.prod(dims))]
        self.constants.append(onnx.tensor(name, dtype, dims, values))
        return name

    def number(self, value):
        return self.constant(self.rng.choice([[], [1]]), [value])

    def op(self, name, *inputs, **attributes):
        output = f't{len(self.nodes)}'
        self.nodes.append(onnx.node(name, list(inputs), [output], **attributes))
        return output

    def either(self, name, a, b):
        """Add an operator whose operands are in random order."""
        return self.op(name, *self.rng.sample([a, b], 2))


def shape(rng, least=2):
    rank = rng.randint(least, 4)
    return ['N'] + [rng.choice([1, 3, 8, 17, 40]) for _ in range(rank - 1)]


def write_norm(graph, x, dims, is_rms, has_scale=True, has_bias=True):
    rng = graph.rng
    n_axes = rng.randint(1, len(dims) - 1)
    axes = list(range(-n_axes, 0))
    epsilon = graph.number(1e-5)
    centred = x if is_rms else graph.op('Sub', x, graph.op('ReduceMean', x, axes=axes))
    again = centred
    if not is_rms and rng.random() < 0.3:
        again = graph.op('Sub', x, graph.op('ReduceMean', x, axes=axes))
    if rng.random() < 0.5:
        square = graph.op('Mul', again, again)
    else:
        square = graph.op('Pow', again, graph.number(2.0))
    variance = graph.op('ReduceMean', square, axes=axes)
    graph.middle = variance
    inside = graph.either('Add', variance, epsilon)
    way = rng.randrange(5)
    if way == 0:
        y = graph.op('Div', centred, graph.op('Sqrt', inside))
    elif way == 1:
        y = graph.either('Mul', centred, graph.op('Reciprocal', graph.op('Sqrt', inside)))
    elif way == 2:
        y = graph.either('Mul', centred, graph.op('Div', graph.number(1.0), graph.op('Sqrt', inside)))
    elif way == 3:
        y = graph.either('Mul', centred, graph.op('Pow', inside, graph.number(-0.5)))
    else:
        y = graph.op('Div', centred, graph.op('Pow', inside, graph.number(0.5)))
    if has_scale:
        y = graph.either('Mul', y, graph.constant(dims[-n_axes:]))
    if has_bias:
        y = graph.either('Add', y, graph.constant(dims[-n_axes:]))
    return y


def layer_norm(graph, rows):
    dims = shape(graph.rng)
    has_scale = graph.rng.random() < 0.7
    return write_norm(graph, graph.input(dims, rows), dims, False, has_scale), ['LayerNormalization']


def rms_norm(graph, rows):
    dims = shape(graph.rng)
    return write_norm(graph, graph.input(dims, rows), dims, True, True, False), ['RMSNormalization']


def gelu(graph, rows):
    rng = graph.rng
    x = graph.input(shape(rng), rows)
    if rng.random() < 0.5:
        inner = graph.op('Div', x, graph.number(math.sqrt(2)))
    else:
        inner = graph.either('Mul', x, graph.number(math.sqrt(0.5)))
    graph.middle = graph.op('Erf', inner)
    gate = graph.either('Add', graph.middle, graph.number(1.0))
    return halves(graph, x, gate), ['Gelu']


def halves(graph, x, gate):
    way = graph.rng.randrange(4)
    if way == 0:
        return graph.either('Mul', graph.either('Mul', x, gate), graph.number(0.5))
    if way == 1:
        return graph.either('Mul', graph.either('Mul', x, graph.number(0.5)), gate)
    if way == 2:
        return graph.op('Div', graph.either('Mul', x, gate), graph.number(2.0))
    return graph.either('Mul', x, graph.either('Mul', gate, graph.number(0.5)))


def gelu_tanh(graph, rows):
    rng = graph.rng
    x = graph.input(shape(rng), rows)
    root, cubic = graph.number(math.sqrt(2 / math.pi)), graph.number(0.044715)
    way = rng.randrange(3)
    if way == 2:
        part = graph.either('Add', graph.either('Mul', graph.op('Mul', x, x), cubic), graph.number(1.0))
        part = graph.either('Mul', graph.either('Mul', x, part), root)
    else:
        cube = graph.op('Pow', x, graph.number(3.0)) if way else graph.op('Mul', x, graph.op('Mul', x, x))
        part = graph.either('Mul', graph.either('Add', x, graph.either('Mul', cube, cubic)), root)
    graph.middle = graph.op('Tanh', part)
    return halves(graph, x, graph.either('Add', graph.middle, graph.number(1.0))), ['Gelu']


def swish(graph, rows):
    x = inner = graph.input(shape(graph.rng), rows)
    if graph.rng.random() < 0.5:
        inner = graph.either('Mul', x, graph.number(1.702))
    graph.middle = graph.op('Sigmoid', inner)
    return graph.either('Mul', x, graph.middle), ['Swish']


def hard_swish(graph, rows):
    x = graph.input(shape(graph.rng), rows)
    if graph.rng.random() < 0.5:
        graph.middle = graph.op('HardSigmoid', x, alpha=1 / 6, beta=0.5)
        return graph.either('Mul', x, graph.middle), ['HardSwish']
    graph.middle = graph.op('Clip', graph.either('Add', x, graph.number(3.0)), graph.constant([], [0.0]),
                            graph.constant([], [6.0]))
    return graph.op('Div', graph.either('Mul', x, graph.middle), graph.number(6.0)), ['HardSwish']


def mish(graph, rows):
    x = graph.input(shape(graph.rng), rows)
    graph.middle = graph.op('Tanh', graph.op('Softplus', x))
    return graph.either('Mul', x, graph.middle), ['Mish']


def gemm(graph, rows):
    rng = graph.rng
    k, n = rng.choice([1, 5, 24]), rng.choice([1, 7, 33])
    graph.middle = graph.op('MatMul', graph.input(['N', k], rows), graph.constant([k, n]))
    return graph.either('Add', graph.middle, graph.constant(rng.choice([[n], [1, n], [1]]))), ['Gemm']


def conv(graph, rows):
    rng = graph.rng
    c, m, space = rng.choice([1, 3, 8]), rng.choice([2, 5, 16]), [rng.choice([5, 9, 12])] * rng.choice([1, 2])
    op, dims = rng.choice([('Conv', [m, c]), ('ConvTranspose', [c, m])])
    graph.middle = graph.op(op, graph.input(['N', c] + space, rows), graph.constant(dims + [3] * len(space)))
    return graph.either('Add', graph.middle, graph.constant(rng.choice([[], [1]]) + [m] + [1] * len(space))), [op]


def attention(graph, rows):
    rng = graph.rng
    heads, queries, keys, size, width = (rng.choice([1, 3, 4]), rng.choice([1, 6, 20]), rng.choice([2, 9, 33]),
                                         rng.choice([4, 16]), rng.choice([4, 8]))
    scale = 1 / math.sqrt(size)
    q = graph.input(['N', heads, queries, size], rows)
    expected = ['Attention']
    if rng.random() < 0.5:
        k = graph.op('Transpose', graph.input(['N', heads, keys, size], rows), perm=[0, 1, 3, 2])
    else:
        k = graph.op('Transpose', graph.input(['N', keys, heads, size], rows), perm=[0, 2, 3, 1])
        expected = ['Transpose', 'Attention']
    way = rng.randrange(3)
    if way == 0:
        q = graph.either('Mul', q, graph.number(math.sqrt(scale)))
        k = graph.either('Mul', k, graph.number(math.sqrt(scale)))
    scores = graph.op('MatMul', q, k)
    if way == 1:
        scores = graph.op('Div', scores, graph.number(1 / scale))
    if rng.random() < 0.5:
        scores = graph.either('Add', scores, graph.constant(rng.choice([[1, 1], [heads, queries]])[-2:] + [keys]
                                                            if rng.random() < 0.5 else [queries, keys]))
    graph.middle = graph.op('Softmax', scores, axis=rng.choice([-1, 3]))
    return graph.op('MatMul', graph.middle, graph.input(['N', heads, keys, width], rows)), expected


def attention_of_one(graph, rows):
    """Build an attention with the heads in the batch dimension."""
    rng = graph.rng
    queries, keys, size, width = (rng.choice([1, 6, 20]), rng.choice([2, 9, 33]), rng.choice([4, 16]),
                                  rng.choice([4, 8]))
    q = graph.either('Mul', graph.input(['N', queries, size], rows), graph.number(1 / math.sqrt(size)))
    k = graph.op('Transpose', graph.input(['N', keys, size], rows), perm=[0, 2, 1])
    scores, expected = graph.op('MatMul', q, k), ['Attention']
    way = rng.randrange(4)
    if way == 1:
        scores = graph.either('Add', scores, graph.constant([rng.choice([1, queries]), keys]))
    elif way == 2:
        scores = graph.either('Add', scores, graph.constant([1, rng.choice([1, queries]), keys]))
    elif way == 3:
        scores = graph.either('Add', scores, graph.input(['N', queries, keys], rows))
        expected = ['Reshape', 'Attention']
    graph.middle = graph.op('Softmax', scores, axis=rng.choice([-1, 2]))
    return graph.op('MatMul', graph.middle, graph.input(['N', keys, width], rows)), expected


def activation(graph, x):
    """Add a Relu, LeakyRelu or Clip, which the broker computes along with the node before."""
    way = graph.rng.randrange(3)
    if way == 0:
        return graph.op('Relu', x), 'Relu'
    if way == 1:
        return graph.op('LeakyRelu', x, alpha=0.25), 'LeakyRelu'
    return graph.op('Clip', x, graph.constant([], [-0.5]), graph.constant([], [1.5])), 'Clip'


def activated(graph, rows):
    rng = graph.rng
    way, bias = rng.randrange(4), rng.random() < 0.5
    if way == 0:
        k, n = rng.choice([1, 9, 24, 400]), rng.choice([1, 3, 7, 33, 130])
        product = graph.op('MatMul', graph.input(['N', rng.choice([1, 2, 13]), k], rows), graph.constant([k, n]))
        op = 'MatMul'
    elif way == 1:
        k, n = rng.choice([1, 9, 24]), rng.choice([1, 3, 7, 33, 130])
        inputs = [graph.input(['N', k], rows), graph.constant([n, k])] + [graph.constant([n])] * bias
        product = graph.op('Gemm', *inputs, transB=1, alpha=rng.choice([1.0, 0.5]))
        op = 'Gemm'
    else:
        op, group, kernel = rng.choice(['Conv', 'Conv', 'ConvTranspose']), rng.choice([1, 1, 4]), rng.choice([1, 3])
        space = [rng.choice([5, 9, 30])] * rng.choice([1, 2, 2, 3])
        c, m = group * rng.choice([1, 2, 8]), group * rng.choice([1, 2, 16, 40])
        dims = [m, c // group] if op == 'Conv' else [c, m // group]
        inputs = [graph.input(['N', c] + space, rows), graph.constant(dims + [kernel] * len(space))]
        product = graph.op(op, *inputs + [graph.constant([m])] * bias, group=group)
    graph.middle = None
    y, name = activation(graph, product)
    return y, [op, name]


def elementwise(graph, rows):
    """Build element-wise nodes at random: in place or not, with operands that are reused, broadcast, or
    used once."""
    rng = graph.rng
    dims = shape(rng)
    x = graph.input(dims, rows)
    names = [x]
    for _ in range(rng.randint(3, 12)):
        op = rng.choice(['Add', 'Mul', 'Sub', 'Sigmoid', 'Tanh', 'Neg', 'Abs', 'Softplus'])
        a = rng.choice(names[-3:])
        if op in ('Add', 'Mul', 'Sub'):
            b = rng.choice(names[-3:] + [graph.constant(dims[-1:])])
            names.append(graph.op(op, *rng.sample([a, b], 2)))
        else:
            names.append(graph.op(op, a))
    return graph.op('Tanh', graph.op('Add', names[-1], names[-2])), None


PATTERNS = [layer_norm, rms_norm, gelu, gelu_tanh, swish, hard_swish, mish, gemm, conv, attention, attention_of_one, activated, elementwise]


def run(*arguments):
    result = subprocess.run([CTL, 'run', '--json', *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, timeout=LIMIT, check=False)
    if result.returncode:
        fail(arguments, 'ended with', result.returncode, result.stdout, result.stderr)
    return json.loads(result.stdout)


def save(graph, folder, outputs):
    rng = graph.rng
    arguments = [onnx.write(os.path.join(folder, 'model.onnx'), onnx.model(
        graph.nodes, [(name, onnx.FLOAT, dims) for name, dims, _ in graph.inputs],
        [(name, onnx.FLOAT, []) for name in outputs], graph.constants))]
    for name, _, dims in graph.inputs:
        path = os.path.join(folder, f'{name}.npy')
        onnx.npy(path, onnx.FLOAT, dims, [rng.uniform(-3, 3) for _ in range(math.prod(dims))])
        arguments.append(f'--input={name}={path}')
    return arguments


def check(graph, y, expected, folder, what):
    """Check the output alone, and then with the tensor in the middle as an output, too."""
    plain = os.path.join(folder, 'plain.npy')
    arguments = save(graph, folder, [y])
    run(*arguments, f'--output={y}={plain}', '--device=cpu', '--disable-optimisation=all')
    for device in DEVICES:
        found = run(*arguments, f'--expect={y}={plain}', f'--device={device}', '--rtol=2e-3', '--atol=2e-4',
                    '--profile', '--repeat=1')
        operators = [each['operator'] for each in found['nodes']]
        if expected and operators != expected:
            fail(what, 'became', operators, 'not', expected)
    if not graph.middle:
        return
    arguments = save(graph, folder, [y, graph.middle])
    found = run(*arguments, '--device=cpu', '--profile', '--repeat=1')
    operators = [each['operator'] for each in found['nodes']]
    if operators == expected or len(operators) <= len(expected):
        fail(what, 'became', operators, 'although another node reads its middle')


def main():
    with tempfile.TemporaryDirectory(prefix='fused-', dir='/tmp') as folder:
        os.environ['RINGBROKER_SOCKET'] = os.path.join(folder, 'sock')
        gpu = 'software' if 'gpu' in DEVICES else 'none'
        process = start_broker([BROKERD, '--socket', os.environ['RINGBROKER_SOCKET'], '--cache', folder,
                                '--calibration=none', f'--gpu={gpu}'], os.path.join(folder, 'log'), LIMIT)
        for seed in range(ROUNDS):
            for pattern in PATTERNS:
                graph = Graph(random.Random(f'{SEED} {seed} {pattern.__name__}'))
                y, expected = pattern(graph, graph.rng.choice([1, 2, 7]))
                check(graph, y, expected, folder, f'{pattern.__name__} {SEED} {seed}')
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT)


main()
