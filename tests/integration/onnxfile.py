# SPDX-License-Identifier: MIT
"""Writers of ONNX models and .npy files, for tests of programs that read them."""
import array
import math
import struct

FLOAT, UINT8, INT8, INT32, INT64, BOOL, FLOAT16, DOUBLE, BFLOAT16 = 1, 2, 3, 6, 7, 9, 10, 11, 16
UINT16, INT16, UINT4, INT4 = 4, 5, 21, 22
DESCR = {FLOAT: '<f4', UINT8: '|u1', INT8: '|i1', INT32: '<i4', INT64: '<i8', BOOL: '|b1',
         FLOAT16: '<f2', DOUBLE: '<f8'}
CODES = {FLOAT: 'f', UINT8: 'B', INT8: 'b', INT32: 'i', INT64: 'q', BOOL: 'B', FLOAT16: 'e', DOUBLE: 'd',
         BFLOAT16: 'H', UINT16: 'H', INT16: 'h'}


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7f | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, value):
    """Encode an int as a varint, other values as bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def bfloat16_bits(value):
    """Return the bits of the nearest bfloat16, rounding ties to even."""
    bits = struct.unpack('<I', struct.pack('<f', value))[0]
    if math.isnan(value):
        return bits >> 16 | 0x40
    return bits + 0x7fff + (bits >> 16 & 1) >> 16


def bfloat16_value(bits):
    return struct.unpack('<f', struct.pack('<I', bits << 16))[0]


def packed(dtype, values):
    if dtype == BFLOAT16:
        values = [bfloat16_bits(value) for value in values]
    if dtype in (UINT4, INT4):
        values = [value & 15 for value in values] + [0]
        return bytes(values[i] | values[i + 1] << 4 for i in range(0, len(values) - 1, 2))
    return struct.pack(f'<{len(values)}{CODES[dtype]}', *values)


def tensor(name, dtype, dims, values):
    """Return a TensorProto."""
    return (b''.join(field(1, dim) for dim in dims) + field(2, dtype) + field(8, name) +
            field(9, packed(dtype, values)))


def value_info(name, dtype, dims):
    """Return a ValueInfoProto; dimensions are numbers, or names of open dimensions."""
    shape = b''.join(field(1, field(2 if isinstance(dim, str) else 1, dim)) for dim in dims)
    return field(1, name) + field(2, field(1, field(1, dtype) + field(2, shape)))


def attribute(name, value):
    """Return an AttributeProto; bytes are a graph()."""
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, 2)
    if isinstance(value, float):
        return field(1, name) + varint(2 << 3 | 5) + struct.pack('<f', value) + field(20, 1)
    if isinstance(value, str):
        return field(1, name) + field(4, value) + field(20, 3)
    if isinstance(value, bytes):
        return field(1, name) + field(6, value) + field(20, 5)
    return field(1, name) + b''.join(field(8, item) for item in value) + field(20, 7)


def node(op, inputs, outputs, name='', **attributes):
    return (b''.join(field(1, each) for each in inputs) + b''.join(field(2, each) for each in outputs) +
            field(3, name) + field(4, op) +
            b''.join(field(5, attribute(key, value)) for key, value in attributes.items()))


def call(domain, op, inputs, outputs, name='', **attributes):
    """Return a node of an operator of another domain, or of a function()."""
    return node(op, inputs, outputs, name, **attributes) + field(7, domain)


def reference(op_node, name, of_function, kind):
    """Return a node with an attribute that refers to one of the enclosing function."""
    return op_node + field(5, field(1, name) + field(20, kind) + field(21, of_function))


def function(domain, name, inputs, outputs, nodes, attributes=(), defaults=(), opset=17):
    """Return a FunctionProto; defaults are attribute()s."""
    return (field(1, name) + b''.join(field(4, each) for each in inputs) +
            b''.join(field(5, each) for each in outputs) + b''.join(field(6, each) for each in attributes) +
            b''.join(field(7, each) for each in nodes) + field(9, field(1, '') + field(2, opset)) +
            field(10, domain) + b''.join(field(11, each) for each in defaults))


def sparse(name, dtype, dims, values, places):
    """Return a SparseTensorProto; places are indexes of elements."""
    return (field(1, tensor(name, dtype, [len(values)], values)) +
            field(2, tensor('', INT64, [len(places)], places)) +
            b''.join(field(3, dim) for dim in dims))


def graph(nodes, inputs, outputs, constants=(), sparse_constants=()):
    """Return a GraphProto; inputs and outputs are (name, type, dims), constants are tensor()s and sparse()s."""
    return (b''.join(field(1, each) for each in nodes) + field(2, 'graph') +
            b''.join(field(5, each) for each in constants) +
            b''.join(field(11, value_info(*each)) for each in inputs) +
            b''.join(field(12, value_info(*each)) for each in outputs) +
            b''.join(field(15, each) for each in sparse_constants))


def model(nodes, inputs, outputs, constants=(), opset=17, functions=(), sparse_constants=(), domains=()):
    """Return a ModelProto of a graph() with functions, and opset 1 of other domains."""
    return (field(1, 8) + field(7, graph(nodes, inputs, outputs, constants, sparse_constants)) +
            field(8, field(1, '') + field(2, opset)) +
            b''.join(field(8, field(1, domain) + field(2, 1)) for domain in domains) +
            b''.join(field(25, each) for each in functions))


def write(path, contents):
    with open(path, 'wb') as file:
        file.write(contents)
    return path


def npy(path, dtype, dims, values):
    """Write a .npy file of values, or of their bytes."""
    shape = '(' + ''.join(f'{dim}, ' for dim in dims) + ')'
    header = f"{{'descr': '{DESCR[dtype]}', 'fortran_order': False, 'shape': {shape}, }}"
    header += ' ' * (-(len(header) + 11) % 64) + '\n'
    data = values if isinstance(values, bytes) else packed(dtype, values)
    return write(path, b'\x93NUMPY\x01\x00' + struct.pack('<H', len(header)) + header.encode() + data)


def read_npy(path):
    """Return dims and values of a float32 file, or dims and bytes of another file."""
    with open(path, 'rb') as file:
        contents = file.read()
    length = struct.unpack_from('<H', contents, 8)[0]
    header = contents[10:10 + length].decode()
    dims = [int(dim) for dim in header.split("'shape': (")[1].split(')')[0].split(',') if dim.strip()]
    data = contents[10 + length:]
    return dims, array.array('f', data) if "'<f4'" in header else data
