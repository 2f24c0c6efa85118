#pragma once
/* SPDX-License-Identifier: MIT */
/* Rounds in processes of their own: a violation, a crash or a hang ends one round alone */
#include <stdbool.h>

/*
 * Start this program again if its addresses are random: they must be the same in each run. Where
 * the system refuses that, say so.
 */
void sim_fix_addresses(char **argv);

/*
 * Run @fn in a new process, with the path of a folder of its own, which is removed afterwards.
 * Return: true: it has returned; false: it has ended the process, and said why.
 */
bool sim_run_apart(void (*fn)(const char *folder, void *data), void *data);
