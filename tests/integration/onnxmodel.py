# SPDX-License-Identifier: MIT
"""A model of many checked nodes, for tests with the arguments BROKERCTL DEVICE."""
import contextlib
import os
import subprocess
import sys
import tempfile

import onnxfile as onnx

from started import expect

CTL, DEVICE = os.path.abspath(sys.argv[1]), sys.argv[2]
LIMIT = 120 * int(os.environ.get('RBK_TEST_SLOW', '1'))


@contextlib.contextmanager
def private_folder(prefix):
    """Make a folder for models and for brokerctl's files, and hide all other brokers."""
    os.environ.pop('RINGBROKER_SOCKET', None)
    with tempfile.TemporaryDirectory(prefix=prefix, dir='/tmp') as folder:
        os.environ['XDG_RUNTIME_DIR'] = folder
        os.environ['XDG_CACHE_HOME'] = os.path.join(folder, 'cache')
        yield folder


def run(model, *arguments):
    return subprocess.run([CTL, 'run', model, '--device', DEVICE, *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False)


def array_file(folder, name, dtype, dims, values):
    """Write a .npy file, or a TensorProto in a .pb file for bfloat16, which .npy does not have."""
    path = os.path.join(folder, name)
    if dtype == onnx.BFLOAT16:
        return onnx.write(path + '.pb', onnx.tensor(name, dtype, dims, values))
    return onnx.npy(path + '.npy', dtype, dims, values)


class Model:
    """A model of many nodes, its input files and its expected outputs."""

    def __init__(self, folder, opset, **more):
        """@more: arguments of onnxfile.model()."""
        self.folder, self.opset, self.more = folder, opset, more
        self.nodes, self.inputs, self.outputs, self.constants, self.arguments = [], [], [], [], []
        self.domains = set()

    def file(self, option, name, dtype, dims, values):
        self.arguments.append(f'--{option}={name}={array_file(self.folder, name, dtype, dims, values)}')

    def input(self, dtype, dims, values, declared=None, name=None):
        """Add an input; @declared replaces its dimensions in the model, which may be open."""
        name = name or f'in{len(self.inputs)}'
        self.inputs.append((name, dtype, declared or dims))
        self.file('input', name, dtype, dims, values)
        return name

    def constant(self, dtype, dims, values):
        name = f'constant{len(self.constants)}'
        self.constants.append(onnx.tensor(name, dtype, dims, values))
        return name

    def output(self, name, dtype, dims, values):
        self.outputs.append((name, dtype, dims))
        self.file('expect', name, dtype, dims, values)

    def node(self, op, inputs, dtype, dims, values, /, more=(), domain='', **attributes):
        """Add a node with @more outputs than one, where None omits an output.

        Return: the name of the first output, and its values, rounded if it is bfloat16."""
        wanted = ((dtype, dims, values), *more)
        names = [f'out{len(self.outputs) + i}_{op}' if each else '' for i, each in enumerate(wanted)]
        self.nodes.append(onnx.call(domain, op, inputs, names, names[0], **attributes))
        if domain:
            self.domains.add(domain)
        for name, each in zip(names, wanted):
            if each:
                self.output(name, *each)
        if dtype == onnx.BFLOAT16:
            values = [onnx.bfloat16_value(onnx.bfloat16_bits(value)) for value in values]
        return names[0], values

    def run(self, *arguments):
        """Run the model, with tolerances and other options. Return: its path."""
        model = onnx.write(os.path.join(self.folder, 'model.onnx'),
                           onnx.model(self.nodes, self.inputs, self.outputs, self.constants,
                                      self.opset, domains=sorted(self.domains), **self.more))
        result = run(model, '--atol=2e-5', *self.arguments, *arguments)
        expect(result.returncode == 0, DEVICE, 'ended with', result.returncode, result.stdout)
        return model
