#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each header compiles alone.

    headers.py ROOT CXX CC... [-- OPTION...]     CXX may be empty: then C++ is not tried
    headers.py --self-test CXX CC...

OPTIONs go to the compiler for the project's own headers; --skip=FOLDER omits headers whose library is
missing.

Installed headers compile as C17 and C++17, with a strict user's warnings; all other headers as the
project's own C. C++ omits two warnings: -Wpedantic refuses unnamed structs, and -Wshadow a function
with the name of a struct, such as struct stat and stat().
"""
import os
import subprocess
import sys
import tempfile

import tree

INSTALLED = {
    'shm/ringbroker/abi.h': 'ringbroker/abi.h',
    'shm/ringbroker/stats.h': 'ringbroker/stats.h',
    'shm/ringbroker/stats-delay.h': 'ringbroker/stats-delay.h',
    'shm/ringbroker/stats-reload.h': 'ringbroker/stats-reload.h',
    'shm/ringbroker/stats-rings.h': 'ringbroker/stats-rings.h',
    'shm/ringbroker/stats-upkeep.h': 'ringbroker/stats-upkeep.h',
    'libclient/ringbroker.h': 'ringbroker.h',
    'libclient/ringbroker/onnx.h': 'ringbroker/onnx.h',
}
STRICT = ['-Wall', '-Wextra', '-Wconversion', '-Wundef', '-Werror']
C17 = ['-x', 'c', '-std=c17', '-Wpedantic', '-Wshadow', '-Wstrict-prototypes', *STRICT]
CXX17 = ['-x', 'c++', '-std=c++17', *STRICT]
GNU17 = ['-x', 'c', '-std=gnu17', '-D_GNU_SOURCE', '-Wall', '-Wextra', '-Wmissing-prototypes',
         '-Wno-unused-parameter', '-Wno-missing-field-initializers', '-Wno-unused-function',
         '-Werror']


def compiles(compiler, flags, root, header, brackets, folders):
    """Return None, or the first error. The header is included twice, to check its guard."""
    line = f'#include <{header}>\n' if brackets else f'#include "{header}"\n'
    command = [*compiler, *flags, *(f'-I{os.path.join(root, f)}' for f in folders),
               '-fsyntax-only', '-']
    result = subprocess.run(command, input=(line + line).encode(), stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, check=False)
    if result.returncode == 0:
        return None
    lines = result.stdout.decode(errors='replace').splitlines()
    return next((text for text in lines if 'error' in text), ' '.join(lines) or 'failed')


def headers(root, skipped=()):
    return [path for path in tree.files(root) if path.endswith('.h')
            and path.split('/')[0] in ('shm', 'libclient', 'broker')
            and os.path.dirname(path) not in skipped]


def check(root, cc, cxx, options=(), skipped=()):
    problems = []
    for path in headers(root, skipped):
        attempts = []
        if path in INSTALLED:
            name = INSTALLED[path]
            attempts.append(('C17', cc, C17, name, True, ['shm', 'libclient']))
            if cxx:
                attempts.append(('C++17', cxx, CXX17, name, True, ['shm', 'libclient']))
        else:
            attempts.append(('C', cc, [*GNU17, *options], path, False,
                             ['.', 'shm', 'broker', 'libclient']))
        for language, compiler, flags, name, brackets, folders in attempts:
            error = compiles(compiler, flags, root, name, brackets, folders)
            if error:
                problems.append(f'{path} alone as {language}: {error}')
    return problems


def main():
    is_self_test = sys.argv[1] == '--self-test'
    cxx = [sys.argv[2]] if sys.argv[2] else []
    cc, options = sys.argv[3:], []
    if '--' in cc:
        cc, options = cc[:cc.index('--')], cc[cc.index('--') + 1:]
    skipped = [option[len('--skip='):] for option in options if option.startswith('--skip=')]
    options = [option for option in options if not option.startswith('--skip=')]
    if is_self_test:
        tree.self_test(lambda root: check(root, cc, cxx),
                       [case for case in CASES if cxx or 'C++' not in case[0]])
    root = sys.argv[1]
    if not cxx:
        print('no C++ compiler: installed headers checked as C only')
    for folder in skipped:
        print(f'not checked: {folder}')
    tree.report(check(root, cc, cxx, options, skipped), len(headers(root, skipped)), 'headers')


ABI = 'shm/ringbroker/abi.h'
CASES = [
    ('good', {ABI: '#pragma once\n#include <stdint.h>\nstruct a { uint32_t b; };\n'}, None),
    ('not alone', {ABI: '#pragma once\nstatic inline int f(void) { return (int)(bool)1; }\n'},
     'alone as C17'),
    ('extension', {ABI: '#pragma once\nstatic inline int f(int a) { return ({ a; }); }\n'},
     'alone as C17'),
    ('twice', {'broker/util/a.h': 'struct a { int b; };\n'}, 'alone as C'),
    ('not alone in a room', {'broker/util/a.h': '#pragma once\nstatic inline size_t f(void) '
                             '{ return 1; }\n'}, 'alone as C'),
    ('not C++', {ABI: '#pragma once\nstruct a { int class; };\n'}, 'alone as C++17'),
    ('not C', {ABI: '#pragma once\nclass a {};\n'}, 'alone as C17'),
    ('conversion', {'libclient/ringbroker.h': '#pragma once\nstatic inline short rbk_f(int a)\n'
                    '{ return (short)a; }\n'}, None),
]

if __name__ == '__main__':
    main()
