#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Functions, branches and sparse weights of model files, by brokerctl run: their results on each
device.

    onnx-inline.py BROKERCTL DEVICE
"""
import math
import os
import subprocess
import sys
import tempfile

import onnxfile as onnx

CTL, DEVICE = os.path.abspath(sys.argv[1]), sys.argv[2]
LIMIT = 120 * int(os.environ.get('RBK_TEST_SLOW', '1'))
X = [-2.0, -0.5, 0.25, 1.0, 3.0, -4.0]
FLOAT_ATTRIBUTE = 1


def run(folder, contents, expected):
    """Run the model with x of 2x3, and compare all of its outputs."""
    path = onnx.write(os.path.join(folder, 'model.onnx'), contents)
    arguments = [f'--expect={name}={onnx.npy(os.path.join(folder, name + ".npy"), onnx.FLOAT, *each)}'
                 for name, each in expected.items()]
    given = onnx.npy(os.path.join(folder, 'x.npy'), onnx.FLOAT, [2, 3], X)
    result = subprocess.run([CTL, 'run', path, '--device', DEVICE, f'--input=x={given}', *arguments],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            timeout=LIMIT, check=False)
    if result.returncode != 0:
        print('onnx-inline.py:', DEVICE, 'ended with', result.returncode, result.stdout)
        sys.exit(1)


def leaky(values, alpha):
    return [value if value > 0 else alpha * value for value in values]


def functions(folder):
    """Each function calls the next with attributes by reference; the last one has another opset."""
    made = [
        onnx.function('my', 'Leaky', ['a'], ['b'],
                      [onnx.reference(onnx.node('LeakyRelu', ['a'], ['b']), 'alpha', 'slope',
                                      FLOAT_ATTRIBUTE)],
                      attributes=['slope']),
        onnx.function('my', 'Twice', ['x', 'y'], ['sum', 'x_out'],
                      [onnx.node('Add', ['t', 'y'], ['sum']),
                       onnx.reference(onnx.call('my', 'Leaky', ['x'], ['t']), 'slope', 'slope',
                                      FLOAT_ATTRIBUTE),
                       onnx.call('my', 'Flat', ['t'], ['x_out'])],
                      defaults=[onnx.attribute('slope', 0.5)]),
        # The Softmax of opset 12 normalizes over all dimensions from the axis on.
        onnx.function('my', 'Flat', ['a'], ['b'], [onnx.node('Softmax', ['a'], ['b'], axis=0)],
                      opset=12),
    ]
    nodes = [onnx.call('my', 'Twice', ['x', 'x'], ['p', 'q']),
             onnx.call('my', 'Twice', ['x', 'p'], ['r', ''], slope=0.25),
             onnx.call('my', 'Leaky', ['x'], ['s'])]
    shape = [2, 3]
    half, quarter = leaky(X, 0.5), leaky(X, 0.25)
    p = [a + b for a, b in zip(half, X)]
    exps = [math.exp(value) for value in half]
    run(folder, onnx.model(nodes, [('x', onnx.FLOAT, shape)],
                           [(name, onnx.FLOAT, shape) for name in 'pqrs'], functions=made),
        {'p': (shape, p), 'q': (shape, [value / sum(exps) for value in exps]),
         'r': (shape, [a + b for a, b in zip(quarter, p)]), 's': (shape, leaky(X, 0.01))})


def branches(folder):
    """One branch of each If is taken; both read outer tensors, and a function has an If, too."""
    shape = [2, 3]
    other = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]

    def branch(op, inputs):
        return onnx.graph([onnx.node(op, inputs, ['t']), onnx.node('Mul', ['t', 'own'], ['u'])], [],
                          [('u', onnx.FLOAT, shape), ('x', onnx.FLOAT, shape)],
                          [onnx.tensor('own', onnx.FLOAT, [1], [2.0])])

    def choose(condition, x, outputs):
        return onnx.node('If', [condition], outputs, then_branch=branch('Add', [x, 'other']),
                         else_branch=branch('Sub', [x, 'other']))

    made = [onnx.function('my', 'Choose', ['c', 'x', 'other'], ['p', 'q'],
                          [choose('c', 'x', ['p', 'q'])])]
    nodes = [onnx.node('Greater', ['two', 'one'], ['yes']), onnx.node('Not', ['yes'], ['no']),
             choose('yes', 'x', ['p', 'same']), choose('no', 'x', ['q', '']),
             onnx.call('my', 'Choose', ['no', 'p', 'other'], ['r', ''])]
    constants = [onnx.tensor('other', onnx.FLOAT, shape, other),
                 onnx.tensor('one', onnx.INT64, [], [1]), onnx.tensor('two', onnx.INT64, [], [2])]
    p = [2 * (a + b) for a, b in zip(X, other)]
    run(folder, onnx.model(nodes, [('x', onnx.FLOAT, shape)],
                           [(name, onnx.FLOAT, shape) for name in ('p', 'same', 'q', 'r')], constants,
                           functions=made),
        {'p': (shape, p), 'same': (shape, X),
         'q': (shape, [2 * (a - b) for a, b in zip(X, other)]),
         'r': (shape, [2 * (a - b) for a, b in zip(p, other)])})


def sparse(folder):
    """Sparse weights."""
    weights = [0.0] * 12
    for place, value in ((1, 0.5), (4, -2.0), (11, 3.0)):
        weights[place] = value
    wanted = [sum(X[i * 3 + k] * weights[k * 4 + j] for k in range(3)) for i in range(2) for j in range(4)]
    run(folder, onnx.model([onnx.node('MatMul', ['x', 'w'], ['y'])], [('x', onnx.FLOAT, [2, 3])],
                           [('y', onnx.FLOAT, [2, 4])],
                           sparse_constants=[onnx.sparse('w', onnx.FLOAT, [3, 4], [0.5, -2.0, 3.0],
                                                         [1, 4, 11])]),
        {'y': ([2, 4], wanted)})


def main():
    os.environ.pop('RINGBROKER_SOCKET', None)
    with tempfile.TemporaryDirectory(prefix='inline-', dir='/tmp') as folder:
        os.environ['XDG_RUNTIME_DIR'] = folder
        os.environ['XDG_CACHE_HOME'] = os.path.join(folder, 'cache')
        functions(folder)
        branches(folder)
        sparse(folder)


main()
