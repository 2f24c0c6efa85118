# SPDX-License-Identifier: MIT
"""seeds.py CORPUS PROGRAM=FOLDER...: check that the seeds of fuzzers are those that their programs write.

A struct of the wire that grows makes a seed of its old size useless: the parser refuses it at once. FOLDER is the
folder of CORPUS that the program gets as its argument, which may be CORPUS itself: ".".
"""
import os
import subprocess
import sys
import tempfile


def main():
    stale = []
    for argument in sys.argv[2:]:
        program, folder = argument.rsplit('=', 1)
        with tempfile.TemporaryDirectory() as written:
            for name in os.listdir(sys.argv[1]):
                os.mkdir(os.path.join(written, name))
            subprocess.run([program, os.path.join(written, folder)], check=True)
            for path, _, files in os.walk(written):
                for file in files:
                    seed = os.path.join(sys.argv[1], os.path.relpath(path, written), file)
                    with open(os.path.join(path, file), 'rb') as new:
                        content = new.read()
                    if not os.path.exists(seed) or open(seed, 'rb').read() != content:
                        stale.append(f'{seed} is stale: write it again by "{os.path.relpath(program)} '
                                     f'{os.path.join(sys.argv[1], folder)}"')
    sys.exit('\n'.join(stale) or 0)


main()
