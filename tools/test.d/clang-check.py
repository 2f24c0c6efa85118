#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Look for clang's warnings in the sources of a build folder, and make no code.

  clang-check.py DIRECTORY

DIRECTORY was set up by meson with CC=clang. Headers and sources that a build generates must be there already; a
folder that meson makes for a target is searched for headers only if it has any. One process of clang checks all
sources whose options are equal: for most of them, the start of clang takes longer than the check. Of kernels, LLVM's
code is made, too: an instruction that the chosen processor lacks is an error of that step.

Exit status: 0 no warning, 1 there are warnings, which clang prints.
"""

import collections
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys

# So many that the start of clang does not count, and so few that all processors have work until the end.
FILES_PER_PROCESS = 24


def has_headers(folder):
    return os.path.isdir(folder) and any(name.endswith(('.h', '.inc')) for name in os.listdir(folder))


def options_of(command):
    """Return the options of a compiler's command that say how a source is understood."""
    options = []
    arguments = iter(shlex.split(command)[1:])
    for argument in arguments:
        if argument in ('-o', '-c', '-MF', '-MQ'):
            next(arguments)
        elif argument == '-MD':
            continue
        elif argument.startswith('-I') and argument.endswith('.p') and not has_headers(argument[2:]):
            continue
        else:
            options.append(argument)
    return tuple(options)


def check(options, sources):
    """Run clang's compiler itself on several sources; clang's driver would start it for each."""
    is_kernel = any(option.startswith('-DCPU_LEVEL=') for option in options)
    what = ['-Xclang', '-emit-llvm-only'] if is_kernel else ['-fsyntax-only']
    said = subprocess.run(['clang', '-###', *what, *options, '-c', sources[0]], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    commands = [line for line in said.stderr.splitlines() if ' "-cc1" ' in line]
    if said.returncode != 0 or len(commands) != 1:
        sys.stderr.write(said.stderr)
        return False
    command = shlex.split(commands[0])
    assert command[-1] == sources[0], command
    name_at = command.index('-main-file-name')
    del command[name_at:name_at + 2]
    return subprocess.run(command[:-1] + sources).returncode == 0


def main():
    if len(sys.argv) != 2:
        sys.exit(f'{sys.argv[0]}: name one build folder')
    os.chdir(sys.argv[1])
    with open('compile_commands.json', encoding='utf-8') as file:
        compiled = json.load(file)
    alike = collections.defaultdict(dict)  # a dict's keys: each source once, in order
    for one in compiled:
        if one['file'].endswith('.c'):
            alike[options_of(one['command'])][one['file']] = True
    jobs = []
    for options, sources in alike.items():
        sources = list(sources)
        for first in range(0, len(sources), FILES_PER_PROCESS):
            jobs.append((options, sources[first:first + FILES_PER_PROCESS]))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda job: check(*job), jobs))
    return 0 if results and all(results) else 1


if __name__ == '__main__':
    sys.exit(main())
