#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write the names of the system calls of the machine that is compiled for, from its headers.

    sandbox-names.py OUTPUT COMPILER...    writes rows [NUMBER] = "NAME" of an array
"""
import re
import subprocess
import sys

macros = subprocess.run([*sys.argv[2:], '-E', '-dM', '-x', 'c', '-'], check=True, text=True,
                        input='#include <sys/syscall.h>\n', stdout=subprocess.PIPE).stdout
names = sorted(re.findall(r'^#define SYS_(\w+) __NR_\1$', macros, flags=re.MULTILINE))
with open(sys.argv[1], 'w', encoding='utf-8') as file:
    file.writelines(f'[SYS_{name}] = "{name}",\n' for name in names)
