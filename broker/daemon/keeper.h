#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The keeper: a process that holds the clients' connections while this one executes a program
 *
 * Reactor thread.
 */

/*
 * Start the keeper. It ends when *ret_fd, which only this process has, is closed, by execve() or by
 * the caller. This process is not its parent. It holds only connections.
 * Return: 0; negative errno of a pipe or a process that could not be made.
 */
int keeper_start(int *ret_fd);
