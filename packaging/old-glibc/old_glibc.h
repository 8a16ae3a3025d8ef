// Included before everything else by packaging/tarball: what our sources use of glibc and the headers of 2.31 lack. The
// kernel has had it for longer, or says so itself (ENOSYS); old_glibc.cc has what must be linked.
#pragma once

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4U
#endif
#if !__GLIBC_PREREQ(2, 36)
#define P_PIDFD 3
#endif
#if !__GLIBC_PREREQ(2, 34)
extern "C" int close_range(unsigned first, unsigned last, int flags) noexcept;
#endif
