#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Hostile clients: programs that break every rule of rings and messages
 *
 * They make valid sessions, and then write entries with changed fields, indices out of range and
 * wrong messages with wrong descriptors, or leave in the middle. Nothing is expected of them. Other
 * clients must not notice.
 */

/* The main function of a simulated process. @data: the path of the socket. */
void sim_hostile_main(void *data);

/* From now on hostile clients end; director. */
void sim_hostile_stop(void);
