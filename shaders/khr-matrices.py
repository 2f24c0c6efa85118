#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A shader for VK_KHR_cooperative_matrix, made of one for VK_NV_cooperative_matrix.

    khr-matrices.py MODULE CODE    writes the SPIR-V of file MODULE, changed, as numbers for C into CODE
    khr-matrices.py --self-test    checks what becomes of small modules, and that mistakes are noticed

Debian 12's glslang knows the older extension alone, which differs in three things: a type does not say
what its matrices are used for, how one lies in memory is said by a truth value behind the stride, and the
numbers of instructions. What a type is used for follows from the products: matrices that are
multiplied on the left, on the right, or summed up must be of types of their own.
"""
import struct
import sys
import tempfile

MAGIC = 0x07230203
HEADER_WORDS = 5
BOUND = 3  # header word: all result IDs are less

EXTENSION, TYPE_INT, CONSTANT_TRUE, CONSTANT_FALSE, CONSTANT, CAPABILITY = \
    10, 21, 41, 42, 43, 17
UNSIGNED = 0
MATRICES_NV, MATRICES_KHR = 5357, 6022
NAME_NV, NAME_KHR = b'SPV_NV_cooperative_matrix\0', b'SPV_KHR_cooperative_matrix\0'
TYPE_NV, LOAD_NV, STORE_NV, PRODUCT_NV, LENGTH_NV = 5358, 5359, 5360, 5361, 5362
TYPE_KHR, LOAD_KHR, STORE_KHR, PRODUCT_KHR, LENGTH_KHR = 4456, 4457, 4458, 4459, 4460
USE_LEFT, USE_RIGHT, USE_SUM = 0, 1, 2
ROW_MAJOR, COLUMN_MAJOR = 0, 1


class Wrong(Exception):
    """What is wrong with a module."""


def split(words):
    """Return the instructions after the header, as (operation, operands)."""
    if len(words) < HEADER_WORDS or words[0] != MAGIC:
        raise Wrong('no module of SPIR-V')
    at, instructions = HEADER_WORDS, []
    while at < len(words):
        n_words = words[at] >> 16
        if n_words == 0 or at + n_words > len(words):
            raise Wrong('an instruction that does not end')
        instructions.append((words[at] & 0xffff, words[at + 1:at + n_words]))
        at += n_words
    return instructions


def join(header, instructions):
    words = list(header)
    for operation, operands in instructions:
        words += [operation | (len(operands) + 1) << 16, *operands]
    return words


def text_words(text):
    text += bytes(-len(text) % 4)
    return list(struct.unpack(f'<{len(text) // 4}I', text))


def types_of_results(instructions):
    """Return {result: type} of the results of matrix types."""
    types = {operands[0] for operation, operands in instructions if operation == TYPE_NV}
    # IDs are unique, so a first operand that is the ID of a matrix type is the type of the instruction's
    # result.
    return {operands[1]: operands[0] for _, operands in instructions
            if len(operands) > 1 and operands[0] in types}


def uses_of_types(instructions):
    """Return {type: use of its matrices}."""
    types, uses = types_of_results(instructions), {}

    def use(kind, purpose):
        if uses.setdefault(kind, purpose) != purpose:
            raise Wrong('matrices of one type are used for different things')

    for operation, operands in instructions:
        if operation == PRODUCT_NV:
            use(operands[0], USE_SUM)
            for matrix, purpose in zip(operands[2:5], (USE_LEFT, USE_RIGHT, USE_SUM)):
                if matrix not in types:
                    raise Wrong('a product of what are no matrices')
                use(types[matrix], purpose)
    return uses


def numbers_for_uses(instructions, bound):
    """Return constants 0, 1 and 2; 0 and 1 are also the layouts."""
    unsigned = [operands[0] for operation, operands in instructions
                if operation == TYPE_INT and operands[1:] == [32, UNSIGNED]]
    if not unsigned:
        raise Wrong('no type for numbers')
    return [(CONSTANT, [unsigned[0], bound + value, value]) for value in (0, 1, 2)]


def change(words):
    """Return the module's words for the newer extension."""
    instructions = split(words)
    uses, bound = uses_of_types(instructions), words[BOUND]
    constants = numbers_for_uses(instructions, bound)
    truth = {operands[1]: int(operation == CONSTANT_TRUE) for operation, operands in instructions
             if operation in (CONSTANT_TRUE, CONSTANT_FALSE)}

    def layout(column_major):
        if column_major not in truth:
            raise Wrong('how a matrix lies in memory is no constant')
        return bound + (COLUMN_MAJOR if truth[column_major] else ROW_MAJOR)

    changed = []
    for operation, operands in instructions:
        if operation == CAPABILITY and operands == [MATRICES_NV]:
            operands = [MATRICES_KHR]
        elif operation == EXTENSION and operands == text_words(NAME_NV):
            operands = text_words(NAME_KHR)
        elif operation == TYPE_NV:
            if operands[0] not in uses:
                raise Wrong('matrices that are in no product')
            # Define the constants once, before their first use.
            changed += constants
            constants = []
            operation, operands = TYPE_KHR, [*operands, bound + uses[operands[0]]]
        elif operation == LOAD_NV:
            kind, result, pointer, stride, column_major, *access = operands
            operation = LOAD_KHR
            operands = [kind, result, pointer, layout(column_major), stride, *access]
        elif operation == STORE_NV:
            pointer, matrix, stride, column_major, *access = operands
            operation = STORE_KHR
            operands = [pointer, matrix, layout(column_major), stride, *access]
        elif operation == PRODUCT_NV:
            operation = PRODUCT_KHR
        elif operation == LENGTH_NV:
            operation = LENGTH_KHR
        changed.append((operation, operands))
    if constants:
        raise Wrong('no matrices')
    header = list(words[:HEADER_WORDS])
    header[BOUND] = bound + 3
    return join(header, changed)


def print_code(words):
    lines = [', '.join(f'0x{word:08x}' for word in words[i:i + 8]) for i in range(0, len(words), 8)]
    return '{' + ',\n'.join(lines) + '}\n'


# ---- The self-test -------------------------------------------------------------------------

# Result IDs; the first three are the types of a product.
LEFT, RIGHT, SUM, WORD, HALF, FLOAT, BOOL, TRUE, FALSE, SIZE, A, B, C, D, WHERE, BEHIND = range(1, 17)


def small(*middle, types=((LEFT, HALF), (RIGHT, HALF), (SUM, FLOAT))):
    return join([MAGIC, 0x10500, 0, BEHIND, 0], [
        (CAPABILITY, [1]), (CAPABILITY, [MATRICES_NV]), (EXTENSION, text_words(NAME_NV)),
        (TYPE_INT, [WORD, 32, UNSIGNED]), (CONSTANT, [WORD, SIZE, 16]), (CONSTANT_TRUE, [BOOL, TRUE]),
        (CONSTANT_FALSE, [BOOL, FALSE]),
        *((TYPE_NV, [kind, element, SIZE, SIZE, SIZE]) for kind, element in types), *middle])


WHOLE = ((LOAD_NV, [LEFT, A, WHERE, SIZE, FALSE]), (LOAD_NV, [RIGHT, B, WHERE, SIZE, TRUE, 40, SIZE]),
         (LOAD_NV, [SUM, C, WHERE, SIZE, FALSE]), (PRODUCT_NV, [SUM, D, A, B, C]),
         (STORE_NV, [WHERE, D, SIZE, FALSE, 24, SIZE]), (LENGTH_NV, [WORD, BEHIND, SUM]))


def expect_wrong(why, words):
    try:
        change(words)
    except Wrong as wrong:
        assert why in str(wrong), (why, wrong)
    else:
        raise AssertionError(f'not noticed: {why}')


def self_test():
    zero, one, two = range(BEHIND, BEHIND + 3)
    words = change(small(*WHOLE))
    assert words[BOUND] == BEHIND + 3
    got = split(words)
    assert got == [
        (CAPABILITY, [1]), (CAPABILITY, [MATRICES_KHR]), (EXTENSION, text_words(NAME_KHR)),
        (TYPE_INT, [WORD, 32, UNSIGNED]), (CONSTANT, [WORD, SIZE, 16]), (CONSTANT_TRUE, [BOOL, TRUE]),
        (CONSTANT_FALSE, [BOOL, FALSE]),
        (CONSTANT, [WORD, zero, 0]), (CONSTANT, [WORD, one, 1]), (CONSTANT, [WORD, two, 2]),
        (TYPE_KHR, [LEFT, HALF, SIZE, SIZE, SIZE, zero]),
        (TYPE_KHR, [RIGHT, HALF, SIZE, SIZE, SIZE, one]),
        (TYPE_KHR, [SUM, FLOAT, SIZE, SIZE, SIZE, two]),
        (LOAD_KHR, [LEFT, A, WHERE, zero, SIZE]),
        (LOAD_KHR, [RIGHT, B, WHERE, one, SIZE, 40, SIZE]), (LOAD_KHR, [SUM, C, WHERE, zero, SIZE]),
        (PRODUCT_KHR, [SUM, D, A, B, C]), (STORE_KHR, [WHERE, D, zero, SIZE, 24, SIZE]),
        (LENGTH_KHR, [WORD, BEHIND, SUM])], got
    assert print_code([1, 2]) == '{0x00000001, 0x00000002}\n'
    expect_wrong('no module', [])
    expect_wrong('no module', [1] * 9)
    expect_wrong('does not end', [*small(*WHOLE), 3 << 16])
    expect_wrong('does not end', [*small(*WHOLE), 0])
    expect_wrong('no matrices', small(types=()))
    expect_wrong('in no product', small(*WHOLE[:3]))
    expect_wrong('different things', small(*WHOLE[:3], (PRODUCT_NV, [SUM, D, A, A, C])))
    expect_wrong('what are no matrices', small(*WHOLE[:3], (PRODUCT_NV, [SUM, D, A, SIZE, C])))
    expect_wrong('no constant', small((LOAD_NV, [LEFT, A, WHERE, SIZE, SIZE]), *WHOLE[1:]))
    # Convert files, as the command line does.
    with tempfile.NamedTemporaryFile() as module, tempfile.NamedTemporaryFile('r') as code:
        module.write(struct.pack(f'<{len(small(*WHOLE))}I', *small(*WHOLE)))
        module.flush()
        convert(module.name, code.name)
        assert code.read() == print_code(words)


def convert(module, code):
    with open(module, 'rb') as file:
        data = file.read()
    words = change(list(struct.unpack(f'<{len(data) // 4}I', data[:len(data) // 4 * 4])))
    with open(code, 'w', encoding='utf-8') as file:
        file.write(print_code(words))


def main():
    if sys.argv[1:] == ['--self-test']:
        self_test()
        return
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        convert(*sys.argv[1:])
    except Wrong as wrong:
        sys.exit(f'{sys.argv[1]}: {wrong}')


main()
