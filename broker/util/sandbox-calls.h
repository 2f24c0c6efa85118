#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The system calls of brokerd's threads
 *
 * Each kind of thread has a letter:
 *
 *	B  every thread of brokerd while it starts, and the threads that drivers make then
 *	S  setup threads
 *	Q  threads of a Vulkan queue
 *	R  the reactor, in its turns
 *	r  the reactor, at its end or rarely: a turn that a test watches has none of these
 *	W  CPU workers
 *	C  closers
 *	N  the thread that starts closers, beside what they may call
 *	M  metrics
 *	T  telemetry
 *	P  watching the run queues
 *
 * A thread may make a call if a row of the call has its letter, and the row's condition holds.
 * Filters add up: B limits all other threads, except P, which starts before.
 *
 * CALL(name, letters, why); CALL_OLD, if machines other than x86-64 lack the call; or
 * CALL_IF(name, letters, argument, operator, value, why), if the call's argument, counted from 0,
 * must satisfy a condition: it IS the value, IS_OWN process's number, HAS all bits of the value, or
 * LACKS them. Arguments are compared as 32-bit words.
 *
 * No thread but the steward executes programs, makes processes, traces others or writes to their
 * memory, mounts, loads modules, or makes another io_uring: the calls are missing here. Only the
 * reactor sends signals, and only those that end a program.
 */
#include <fcntl.h>
#include <linux/bpf.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* Flags of open() that change files */
#define SANDBOX_OPEN_WRITES  (O_ACCMODE | O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY))
#define SANDBOX_CLONE_THREAD 0x00010000u
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif

#define SANDBOX_EVERYONE "BSQrWCMTP"

/* clang-format off */
#define SANDBOX_CALLS(CALL, CALL_OLD, CALL_IF) \
	CALL(io_uring_enter, "BR", "how it waits, and is told of what is ready") \
	/* --- Time, waiting, and the life of a thread --- */ \
	CALL(futex, SANDBOX_EVERYONE "R", "hands jobs to threads and wakes them") \
	CALL(futex_waitv, SANDBOX_EVERYONE, "the C library and drivers") \
	CALL(sched_yield, SANDBOX_EVERYONE "R", "between polls") \
	CALL(clock_gettime, SANDBOX_EVERYONE "R", "where the kernel's counter is not trusted") \
	CALL(clock_getres, SANDBOX_EVERYONE, "likewise") \
	CALL(gettimeofday, SANDBOX_EVERYONE, "likewise") \
	CALL_OLD(time, SANDBOX_EVERYONE, "likewise") \
	CALL(getcpu, SANDBOX_EVERYONE, "likewise") \
	CALL(nanosleep, SANDBOX_EVERYONE, "pauses") \
	CALL(clock_nanosleep, SANDBOX_EVERYONE "R", "pauses; lets clients run that wait for its processor") \
	CALL(restart_syscall, SANDBOX_EVERYONE "R", "after a stop") \
	CALL(exit, SANDBOX_EVERYONE, "its end") \
	CALL(exit_group, SANDBOX_EVERYONE, "the end of brokerd") \
	CALL(getpid, SANDBOX_EVERYONE "R", "who it is") \
	CALL(gettid, SANDBOX_EVERYONE, "likewise") \
	CALL(set_robust_list, SANDBOX_EVERYONE, "the C library") \
	CALL(rseq, SANDBOX_EVERYONE, "the C library") \
	CALL(membarrier, SANDBOX_EVERYONE "R", "the C library and drivers; sleeps of rings") \
	CALL(getrandom, SANDBOX_EVERYONE, "the C library") \
	CALL(sysinfo, SANDBOX_EVERYONE, "qsort()") \
	CALL_IF(prctl, "rWCMTP", 0, IS, PR_SET_NAME, "its name") \
	CALL_IF(prctl, "rWCMTP", 0, IS, PR_SET_VMA, "the C library") \
	CALL_IF(prctl, "NM", 0, IS, PR_SET_NO_NEW_PRIVS, "gives up privileges; filters of closers") \
	CALL(prctl, "BSQ", "likewise, and filters for new threads") \
	/* --- Signals: the handlers of deadly ones --- */ \
	CALL(rt_sigreturn, SANDBOX_EVERYONE, "the end of a handler") \
	CALL(rt_sigaction, SANDBOX_EVERYONE, "the handler of a crash") \
	CALL(rt_sigprocmask, SANDBOX_EVERYONE, "abort(), new threads") \
	CALL(sigaltstack, SANDBOX_EVERYONE, "stacks of handlers") \
	CALL_IF(tgkill, SANDBOX_EVERYONE, 0, IS_OWN, 0, "raise()") \
	/* --- Memory: never to be executed, but for what drivers compile --- */ \
	CALL(brk, SANDBOX_EVERYONE "R", "small pieces; nobody holds that lock for long") \
	CALL_IF(mmap, SANDBOX_EVERYONE, 2, LACKS, PROT_EXEC, "memory, also in the handler of SIGBUS") \
	CALL_IF(mprotect, SANDBOX_EVERYONE, 2, LACKS, PROT_EXEC, "heaps and stacks of threads") \
	CALL(munmap, SANDBOX_EVERYONE, "memory") \
	CALL(mremap, SANDBOX_EVERYONE, "memory") \
	CALL(madvise, SANDBOX_EVERYONE, "memory") \
	CALL(mmap, "BSQ", "compilers and libraries of drivers") \
	CALL(mprotect, "BSQ", "likewise") \
	CALL(msync, "BSQ", "drivers") \
	CALL(mincore, "BSQ", "drivers") \
	CALL(mlock, "BSQ", "drivers") \
	CALL(mlock2, "BSQ", "drivers") \
	CALL(munlock, "BSQ", "drivers") \
	CALL(get_mempolicy, "BSQ", "drivers") \
	CALL(mbind, "BSQ", "drivers") \
	CALL(memfd_create, "BSQrCT", "memory that clients see; drivers; files of the tests' simulated driver") \
	/* --- Descriptors that it has --- */ \
	CALL(read, SANDBOX_EVERYONE "R", "its eventfds, and /proc about who connects") \
	CALL(write, SANDBOX_EVERYONE "R", "wakes threads by their eventfds; log lines") \
	CALL(writev, SANDBOX_EVERYONE, "messages of the C library before it aborts") \
	CALL(close, SANDBOX_EVERYONE "R", "connections without anything unread; its own files") \
	CALL_OLD(poll, SANDBOX_EVERYONE "R", "is a process alive, is a log taken, is a bell closed? Without waiting") \
	CALL(ppoll, SANDBOX_EVERYONE "R", "likewise") \
	CALL(fcntl, SANDBOX_EVERYONE "R", "is a descriptor that a thread has received a memfd?") \
	CALL(fstat, SANDBOX_EVERYONE "R", "/proc about who connects") \
	CALL(lseek, SANDBOX_EVERYONE "R", "likewise") \
	CALL(pread64, "BSQRMTP", "/proc; a description in a memfd") \
	CALL(pwrite64, "BSQ", "files") \
	CALL(readv, "BSQM", "files") \
	CALL(preadv, "BSQ", "files") \
	CALL(preadv2, "BSQ", "files") \
	CALL(pwritev, "BSQ", "files") \
	CALL(ioctl, "BSQRCTP", "of its own files; is an answer unread?") \
	CALL(fstatfs, "BSQRCTP", "is it an ordinary memfd?") \
	CALL(dup, "BSQr", "descriptors of memory for drivers") \
	CALL(dup3, "B", "descriptors for the next broker") \
	CALL_OLD(dup2, "B", "likewise") \
	CALL(eventfd2, "BSQr", "a closer that is to be started") \
	CALL(pipe2, "BS", "the check of the next broker") \
	CALL_OLD(select, "BSQM", "drivers, libmicrohttpd") \
	CALL(pselect6, "BSQM", "likewise") \
	CALL(epoll_create1, "BSQ", "drivers, libmicrohttpd") \
	CALL(epoll_ctl, "BSQM", "likewise") \
	CALL_OLD(epoll_wait, "BSQM", "likewise") \
	CALL(epoll_pwait, "BSQM", "likewise") \
	CALL(timerfd_create, "BSQ", "drivers") \
	CALL(timerfd_settime, "BSQTP", "paces") \
	CALL(timerfd_gettime, "BSQTP", "paces") \
	CALL(signalfd4, "B", "signals to the reactor") \
	CALL(ftruncate, "BSQrC", "memory that clients see; caches of drivers") \
	CALL(fallocate, "BSQrC", "likewise") \
	CALL(flock, "BSQ", "locks of sockets and caches") \
	CALL(fsync, "BSQ", "caches") \
	CALL(fdatasync, "BSQ", "caches") \
	CALL(fadvise64, "BSQ", "caches") \
	CALL(copy_file_range, "BSQ", "caches") \
	CALL(sendfile, "BSQM", "caches, libmicrohttpd") \
	/* --- Sockets that it has --- */ \
	CALL(recvmsg, "BSQRCMTP", "messages, looked at before they are received") \
	CALL(recvmmsg, "BRC", "likewise, all that is in one") \
	CALL(recvfrom, "BSQRM", "bells") \
	CALL(sendmsg, "BSQRCM", "answers") \
	CALL(sendto, SANDBOX_EVERYONE "R", "bells; log lines") \
	CALL(sendmmsg, "BS", "name services") \
	CALL(accept4, "BRM", "connections") \
	CALL(shutdown, "BSQRCM", "ends of connections and bells") \
	CALL(getsockopt, "BSQRCM", "who connects") \
	CALL(setsockopt, "BSQRCM", "is something unread in a connection?") \
	CALL(getsockname, "BSQrM", "addresses") \
	CALL(getpeername, "BSQM", "addresses") \
	/* --- New sockets --- */ \
	CALL(socket, "B", "its own sockets") \
	CALL(bind, "B", "its own sockets") \
	CALL(listen, "B", "its own sockets") \
	CALL(socketpair, "BS", "bells") \
	CALL_IF(socket, "S", 0, IS, AF_UNIX, "name services, when the policy is read") \
	CALL_IF(socket, "S", 0, IS, AF_NETLINK, "devices that are looked for") \
	CALL_IF(bind, "S", 2, IS, 12, "the address of a netlink socket, which has no other length") \
	CALL(connect, "BS", "name services, the journal") \
	/* --- Files --- */ \
	CALL_IF(openat, "RMTP", 2, LACKS, SANDBOX_OPEN_WRITES, "/proc and /sys, to read") \
	CALL_IF(openat, "T", 2, LACKS, SANDBOX_OPEN_WRITES & ~O_RDWR, "devices that are back") \
	CALL_IF(openat, "Q", 2, LACKS, SANDBOX_OPEN_WRITES & ~O_RDWR, "libraries and devices of drivers") \
	CALL(openat, "BS", "caches, the policy, libraries and devices of drivers") \
	CALL_OLD(open, "BS", "likewise") \
	CALL(newfstatat, "BSQRCMTP", "as fstat") \
	CALL(statx, "BSQRCMTP", "likewise") \
	CALL_OLD(stat, "BSQrMTP", "likewise") \
	CALL_OLD(lstat, "BSQrMTP", "likewise") \
	CALL_OLD(access, "BSQrTP", "files that may be missing") \
	CALL(faccessat, "BSQrTP", "likewise") \
	CALL(faccessat2, "BSQrTP", "likewise") \
	CALL(readlinkat, "BSQrTP", "names of devices and of cgroups") \
	CALL_OLD(readlink, "BSQrTP", "likewise") \
	CALL(getdents64, "BSQrMTP", "folders of /proc and /sys") \
	CALL(open_by_handle_at, "P", "names of cgroups that the probes have met") \
	CALL(statfs, "BSQr", "files of drivers; is a folder that of a gate?") \
	CALL(getcwd, "BSQ", "libraries of drivers") \
	CALL(umask, "B", "its own sockets") \
	CALL_OLD(mkdir, "BS", "caches") \
	CALL(mkdirat, "BS", "caches") \
	CALL_OLD(rmdir, "BS", "caches") \
	CALL_OLD(unlink, "BST", "caches; files of the tests' simulated driver") \
	CALL(unlinkat, "BS", "caches") \
	CALL_OLD(rename, "BS", "caches") \
	CALL(renameat, "BS", "caches") \
	CALL(renameat2, "BS", "caches") \
	CALL(linkat, "BS", "caches") \
	CALL_OLD(link, "BS", "caches") \
	CALL_OLD(symlink, "B", "the link to the administrators' socket") \
	CALL(symlinkat, "B", "likewise") \
	CALL_OLD(chmod, "BS", "its own sockets, caches") \
	CALL(fchmod, "BS", "likewise") \
	CALL(fchmodat, "BS", "likewise") \
	CALL_OLD(chown, "B", "the group of its own sockets") \
	CALL(fchown, "B", "likewise") \
	CALL(fchownat, "B", "likewise") \
	CALL_OLD(lchown, "B", "likewise") \
	CALL(utimensat, "BS", "caches") \
	CALL(inotify_init1, "BR", "is told when clients let go of memory") \
	CALL(inotify_add_watch, "BSrC", "likewise") \
	CALL(inotify_rm_watch, "BSrC", "likewise") \
	/* --- Processes and threads --- */ \
	CALL_IF(clone, "BSQN", 0, HAS, SANDBOX_CLONE_THREAD, "threads") \
	CALL_IF(seccomp, "BSQN", 0, IS, 1, "filters of new threads") \
	CALL(set_tid_address, "B", "drivers") \
	CALL(rt_sigpending, "B", "is it to end while it waits for its socket?") \
	CALL(pidfd_open, "BSR", "who connects; the check of the next broker") \
	CALL_IF(kill, "BP", 1, IS, 0, "does a process exist?") \
	CALL_IF(pidfd_send_signal, "Br", 1, IS, SIGTERM, "stops programs without a lease") \
	CALL_IF(pidfd_send_signal, "Br", 1, IS, SIGKILL, "likewise") \
	CALL(wait4, "Br", "the check of the next broker") \
	CALL(kcmp, "BSQ", "Mesa: are two descriptors of one file?") \
	CALL(sched_getaffinity, "BSQRWTP", "before it leaves a client's processor") \
	CALL(sched_setaffinity, "BSQRW", "leaves a client's processor, some 10 us, at most once in 1 ms") \
	CALL(sched_getattr, "BSQrWTP", "its share of the processors") \
	CALL(sched_setattr, "BSQWTP", "likewise") \
	CALL(sched_getscheduler, "BSQ", "drivers") \
	CALL(sched_setscheduler, "BSQ", "drivers, the device of tests") \
	CALL(sched_getparam, "BSQ", "drivers") \
	CALL(sched_setparam, "BSQ", "drivers") \
	CALL(sched_get_priority_max, "BSQ", "drivers") \
	CALL(sched_get_priority_min, "BSQ", "drivers") \
	CALL(getpriority, "BSQ", "drivers") \
	CALL(setpriority, "BSQ", "drivers: threads that give way to others") \
	CALL(getrusage, "BSQMTP", "figures of this process") \
	CALL(times, "BSQM", "likewise") \
	CALL_IF(prlimit64, "rMTP", 2, IS, 0, "limits of this process, to read") \
	CALL(prlimit64, "BSQ", "limits of this process") \
	CALL_OLD(getrlimit, "BSQrMTP", "likewise") \
	CALL(uname, "BSQTP", "drivers, probes") \
	CALL(getuid, "BSQrTP", "who it runs as") \
	CALL(geteuid, "BSQrTP", "likewise") \
	CALL(getgid, "BSQTP", "likewise") \
	CALL(getegid, "BSQTP", "likewise") \
	CALL(getgroups, "BSQTP", "likewise") \
	CALL(getppid, "BSQ", "likewise") \
	CALL(getresuid, "BSQ", "likewise") \
	CALL(getresgid, "BSQ", "likewise") \
	CALL(capget, "BMP", "its privileges, of which it gives up some") \
	CALL(capset, "BMP", "likewise") \
	CALL(bpf, "P", "maps of the probes, and the probes when they are late") \
	CALL_IF(bpf, "Br", 0, IS, BPF_OBJ_GET, "the gate's map") \
	CALL_IF(bpf, "Br", 0, IS, BPF_OBJ_GET_INFO_BY_FD, "likewise") \
	CALL_IF(bpf, "Br", 0, IS, BPF_MAP_GET_NEXT_KEY, "likewise") \
	CALL_IF(bpf, "Br", 0, IS, BPF_MAP_UPDATE_ELEM, "opens the gate for a lease") \
	CALL_IF(bpf, "Br", 0, IS, BPF_MAP_DELETE_ELEM, "closes it") \
	CALL(perf_event_open, "P", "likewise")
/* clang-format on */
