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


class Model:
    """A model of many nodes, its input files and its expected outputs."""

    def __init__(self, folder, opset):
        self.folder, self.opset = folder, opset
        self.nodes, self.inputs, self.outputs, self.constants, self.arguments = [], [], [], [], []
        self.domains = set()

    def file(self, option, name, dtype, dims, values):
        path = onnx.npy(os.path.join(self.folder, f'{name}.npy'), dtype, dims, values)
        self.arguments.append(f'--{option}={name}={path}')

    def input(self, dtype, dims, values, declared=None):
        """Add an input; @declared replaces its dimensions in the model, which may be open."""
        name = f'in{len(self.inputs)}'
        self.inputs.append((name, dtype, declared or dims))
        self.file('input', name, dtype, dims, values)
        return name

    def constant(self, dtype, dims, values):
        name = f'constant{len(self.constants)}'
        self.constants.append(onnx.tensor(name, dtype, dims, values))
        return name

    def node(self, op, inputs, dtype, dims, values, /, more=(), domain='', **attributes):
        """Add a node with @more outputs than one, where None omits an output."""
        wanted = ((dtype, dims, values), *more)
        names = [f'out{len(self.outputs) + i}_{op}' if each else '' for i, each in enumerate(wanted)]
        self.nodes.append(onnx.call(domain, op, inputs, names, names[0], **attributes))
        if domain:
            self.domains.add(domain)
        for name, each in zip(names, wanted):
            if each:
                self.outputs.append((name, *each[:2]))
                self.file('expect', name, *each)

    def run(self, *arguments):
        model = onnx.write(os.path.join(self.folder, 'model.onnx'),
                           onnx.model(self.nodes, self.inputs, self.outputs, self.constants,
                                      self.opset, domains=sorted(self.domains)))
        result = subprocess.run([CTL, 'run', model, '--device', DEVICE, '--atol=2e-5', *self.arguments,
                                 *arguments],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                timeout=LIMIT, check=False)
        expect(result.returncode == 0, DEVICE, 'ended with', result.returncode, result.stdout)
