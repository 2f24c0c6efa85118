#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Style rules that can be checked automatically.

    style.py ROOT          checks the tree; clang-format 14 too, where it is installed
    style.py --self-test   checks that each rule catches what it is for
"""
import os
import re
import shutil
import subprocess
import sys

import tree

MAX_LINES = 1000
SPDX = 'SPDX-License-Identifier: MIT'
C_SOURCES = ('.c', '.h')
SHADERS = ('.comp', '.glsl')
BINARY = ('.bin', '.png', '.onnx', '.ico', '.spv', '.gz', '.seed')
# The words are split, or this file would match itself.
WORDS = re.compile(r'\b(' + '|'.join(['TO' 'DO', 'FIX' 'ME', 'XX' 'X', 'HA' 'CK'])
                   + r')\b|\b(for' r'[ \t]+now|not' r'[ \t]+implemented)\b', re.IGNORECASE)
CASE_SENSITIVE = {'TO' 'DO', 'FIX' 'ME', 'XX' 'X', 'HA' 'CK'}
# The deadlines of these functions are of a clock that an administrator may set while they wait.
SETTABLE = re.compile(r'\b(sem_timedwait|pthread_(mutex_timedlock|rwlock_timed(rd|wr)lock)'
                      r'|mtx_timedlock|cnd_timedwait)\b')
NAME = re.compile(r'^[a-z0-9]+([.-][a-z0-9]+)*$')
TYPEDEF = re.compile(r'\btypedef\s+(struct|union|enum)\b')
# Empty lines of macros are excluded, because clang-format aligns their continuation marks.
INDENTED = re.compile(r'^ +[^ *\\\n]', re.MULTILINE)


def found(pattern, text):
    """Yield each match of the pattern with its line number."""
    for match in pattern.finditer(text):
        yield text.count('\n', 0, match.start()) + 1, match


def check_words(path, text, problems):
    for number, match in found(WORDS, text):
        word = match.group(0)
        if word.upper() in CASE_SENSITIVE and not word.isupper():
            continue
        problems.append(f'{path}:{number}: "{word}": do it, or leave it out')


def check_space(path, text, lines, problems):
    if '\r' in text:
        problems.append(f'{path}: lines end with CR')
    elif not text.endswith('\n'):
        problems.append(f'{path}: the last line has no end')
    elif text.endswith('\n\n'):
        problems.append(f'{path}: empty lines at the end')
    for number, line in enumerate(lines, 1):
        if line != line.rstrip() and '\r' not in line:
            problems.append(f'{path}:{number}: white space at the end')


# gcc warns about #pragma once in precompiled headers.
PRECOMPILED = ('broker/cpu/intrinsics/all.h',)


def check_c(path, text, lines, problems):
    head = [line.strip() for line in lines[:3]] + [''] * 3
    if path.endswith('.h') and path not in PRECOMPILED:
        if head[0] != '#pragma once':
            problems.append(f'{path}:1: a header starts with #pragma once')
        elif head[1] != f'/* {SPDX} */':
            problems.append(f'{path}:2: the licence line comes second')
        elif not head[2].startswith('/*'):
            problems.append(f'{path}:3: a comment says what the header is for')
    elif path.endswith(('.c', '.h')):
        if head[0] != f'/* {SPDX} */':
            problems.append(f'{path}:1: the licence line comes first')
        elif not head[1].startswith('/*'):
            problems.append(f'{path}:2: a comment says what the file is about')
    elif SPDX not in '\n'.join(lines[:3]):
        problems.append(f'{path}: no licence line')

    code, slashes = tree.without_comments(text)
    for number in slashes:
        problems.append(f'{path}:{number}: a // comment; only /* */ is committed')
    for number, _ in found(INDENTED, text):
        problems.append(f'{path}:{number}: indented with spaces')
    for number, match in found(TYPEDEF, code):
        problems.append(f'{path}:{number}: typedef of a {match.group(1)}')
    for number, match in found(SETTABLE, code):
        problems.append(f'{path}:{number}: {match.group(1)}() waits by the time of day')
    if not NAME.match(os.path.basename(path)):
        problems.append(f'{path}: names are kebab-case')


def check_format(root, paths, problems):
    """Return true if clang-format 14 checked the layout."""
    program = shutil.which('clang-format-14') or shutil.which('clang-format')
    if not program:
        return False
    version = subprocess.run([program, '--version'], stdout=subprocess.PIPE, check=True)
    # Other versions format differently; the version of Debian 12 decides.
    if b'version 14.' not in version.stdout:
        return False
    result = subprocess.run([program, '--dry-run', '-Werror', *paths], cwd=root,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    for line in result.stdout.decode(errors='replace').splitlines():
        if 'error:' in line:
            problems.append(line.replace('code should be clang-formatted', 'run clang-format -i'))
    if result.returncode and not result.stdout:
        problems.append(f'{program} failed')
    return True


def checked_paths(root):
    return [path for path in tree.files(root) if not path.endswith(BINARY)
            and '/corpus/' not in path and '/data/' not in path]


def check(root):
    problems = []
    for path in checked_paths(root):
        text = tree.read(root, path)
        lines = text.split('\n')
        check_space(path, text, lines, problems)
        check_words(path, text, problems)
        is_script = text.startswith('#!')
        if path.endswith(C_SOURCES + SHADERS):
            check_c(path, text, lines, problems)
        elif (is_script or path.endswith('.py')) and SPDX not in '\n'.join(lines[:3]):
            problems.append(f'{path}: no licence line')
        if (path.endswith(C_SOURCES + SHADERS + ('.py',)) or is_script) and \
                len(lines) - 1 > MAX_LINES:
            problems.append(f'{path}: {len(lines) - 1} lines; split it')
    return problems


def main():
    if sys.argv[1:] == ['--self-test']:
        tree.self_test(check, CASES)
    root = sys.argv[1]
    problems = check(root)
    sources = [path for path in checked_paths(root) if path.endswith(C_SOURCES)]
    if sources and not check_format(root, sources, problems):
        print('clang-format 14 is not installed: layout not checked')
    tree.report(problems, len(checked_paths(root)), 'files')


C = f'/* {SPDX} */\n/* Purpose. */\n'
H = f'#pragma once\n/* {SPDX} */\n/* Purpose. */\n'

CASES = [
    ('good .c', {'a/b-c.c': C + 'const char *s = "http://x";\n\tint c = \'"\'; /* // */\n'}, None),
    ('good .h', {'a/b.h': H + 'struct b;\n'}, None),
    ('good script', {'t': f'#!/bin/sh\n# {SPDX}\n:\n'}, None),
    ('slashes', {'a/b.c': C + 'int a; // b\n'}, 'b.c:3: a // comment'),
    ('slashes in a shader', {'a/b.comp': f'#version 460\n/* {SPDX} */\n// b\n'}, 'b.comp:3'),
    ('slashes after a string', {'a/b.c': C + 'char *s = "\\"//"; // b\n'}, 'b.c:3: a // comment'),
    ('licence in .c', {'a/b.c': '/* Purpose. */\nint a;\n'}, 'licence line comes first'),
    ('licence in .h', {'a/b.h': '#pragma once\n/* Purpose. */\nint a;\n'}, 'comes second'),
    ('licence in a script', {'t': '#!/bin/sh\n:\n'}, 'no licence line'),
    ('licence in a shader', {'b.comp': '#version 460\nvoid main() {}\n'}, 'no licence line'),
    ('pragma', {'a/b.h': C}, '#pragma once'),
    ('no pragma', {'broker/cpu/intrinsics/all.h': C}, None),
    ('purpose of .c', {'a/b.c': f'/* {SPDX} */\nint a;\n'}, 'what the file is about'),
    ('purpose of .h', {'a/b.h': f'#pragma once\n/* {SPDX} */\nint a;\n'}, 'what the header is'),
    ('spaces', {'a/b.c': C + '    int a;\n'}, 'b.c:3: indented with spaces'),
    ('empty line of a macro', {'a/b.c': C + '#define A \\\n       \\\n\tb\n'}, None),
    ('trailing space', {'a/b.c': C + 'int a; \n'}, 'b.c:3: white space'),
    ('trailing tab in meson', {'meson.build': 'a = 1\t\n'}, 'meson.build:1: white space'),
    ('no end', {'a/b.c': C + 'int a;'}, 'no end'),
    ('empty lines', {'a/b.c': C + '\n\n'}, 'empty lines'),
    ('CR', {'a/b.c': (C + 'int a;\n').replace('\n', '\r\n')}, 'CR'),
    ('typedef', {'a/b.c': C + 'typedef struct a a_t;\n'}, 'b.c:3: typedef of a struct'),
    ('typedef of a function', {'a/b.c': C + 'typedef void (*a_fn)(void);\n'}, None),
    ('wait by the time of day', {'a/b.c': C + 'int r = sem_timedwait(s, &t);\n'},
     'b.c:3: sem_timedwait() waits by the time of day'),
    ('wait by a steady clock', {'a/b.c': C + 'int r = sem_clockwait(s, c, &t);\n'}, None),
    ('name', {'a/b_c.c': C}, 'kebab-case'),
    ('word', {'a/b.c': C + '/* TO' 'DO: all */\n'}, 'do it, or'),
    ('words', {'README.md': 'This does nothing for' ' now.\n'}, 'do it, or'),
    ('small word', {'README.md': 'mktemp a.xx' 'x\n'}, None),
    ('long', {'a/b.c': C + 'int a;\n' * 999}, '1001 lines'),
    ('not long', {'a/b.c': C + 'int a;\n' * 998}, None),
]

if __name__ == '__main__':
    main()
