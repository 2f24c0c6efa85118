#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Functions, branches and sparse weights of model files, by brokerctl run: their results on each
device.

    onnx-inline.py BROKERCTL DEVICE
"""
import math

import onnxfile as onnx
from onnxmodel import Model, private_folder

X = [-2.0, -0.5, 0.25, 1.0, 3.0, -4.0]
FLOAT_ATTRIBUTE = 1


def check(folder, nodes, expected, constants=(), **more):
    """Run the model with x of 2x3, and compare all of its outputs."""
    model = Model(folder, 17, **more)
    model.nodes, model.constants = nodes, constants
    model.input(onnx.FLOAT, [2, 3], X, name='x')
    for name, each in expected.items():
        model.output(name, onnx.FLOAT, *each)
    model.run()


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
    check(folder, nodes,
          {'p': (shape, p), 'q': (shape, [value / sum(exps) for value in exps]),
           'r': (shape, [a + b for a, b in zip(quarter, p)]), 's': (shape, leaky(X, 0.01))}, functions=made)


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
    check(folder, nodes,
          {'p': (shape, p), 'same': (shape, X), 'q': (shape, [2 * (a - b) for a, b in zip(X, other)]),
           'r': (shape, [2 * (a - b) for a, b in zip(p, other)])}, constants, functions=made)


def sparse(folder):
    """Sparse weights."""
    weights = [0.0] * 12
    for place, value in ((1, 0.5), (4, -2.0), (11, 3.0)):
        weights[place] = value
    wanted = [sum(X[i * 3 + k] * weights[k * 4 + j] for k in range(3)) for i in range(2) for j in range(4)]
    check(folder, [onnx.node('MatMul', ['x', 'w'], ['y'])], {'y': ([2, 4], wanted)},
          sparse_constants=[onnx.sparse('w', onnx.FLOAT, [3, 4], [0.5, -2.0, 3.0], [1, 4, 11])])


def main():
    with private_folder('inline-') as folder:
        functions(folder)
        branches(folder)
        sparse(folder)


main()
