"""Which system calls may fail, and how: what the kernel documents for them and a machine in trouble really answers."""
import errno


# call → errors. A call that is not here is never made to fail: it cannot (getpid, exit, munmap), or nothing can be done
# about it by anybody (futex). "short" is a call that does half of what was asked, which the kernel may always do.
_TABLE = """
openat open              ENOENT EACCES EPERM ESRCH EMFILE ENOMEM ENOSPC EIO EINTR
read pread64 readv       EIO EINTR EAGAIN ESRCH ENOMEM ENODEV short
write pwrite64 writev    ENOSPC EIO EINTR EAGAIN EPERM ESRCH EBUSY ENOMEM short
close                    EIO EINTR
fstat                    EIO
newfstatat stat lstat statx  ENOENT EACCES ENOMEM EIO
access faccessat faccessat2  ENOENT EACCES
readlink readlinkat      ENOENT EACCES ENOMEM ESRCH
statfs fstatfs           EIO
lseek                    EINVAL
ioctl                    ENOTTY EIO
fcntl                    EAGAIN EINTR EMFILE
dup dup2 dup3            EMFILE EINTR
pipe2 pipe socketpair socket  EMFILE ENOMEM
eventfd2 epoll_create1 timerfd_create signalfd4 inotify_init1 memfd_create  EMFILE ENOMEM
pidfd_open               EMFILE ENOMEM ESRCH
pidfd_getfd              EMFILE EPERM
pidfd_send_signal        ESRCH EPERM
kill tgkill              ESRCH EPERM
ftruncate truncate fallocate  ENOSPC EIO
fsync fdatasync          EIO ENOSPC
flock                    EINTR ENOLCK EAGAIN EIO
fchmod chmod fchown chown fchmodat fchownat  EPERM EIO
utimensat                EPERM
getdents64               EIO ENOENT ENOMEM
unlink unlinkat rmdir    ENOENT EACCES EIO
mkdir mkdirat            EACCES ENOSPC EEXIST
rename renameat renameat2 link linkat symlink symlinkat  EACCES ENOSPC ENOENT
mknod mknodat            EPERM ENOSPC
chdir fchdir             ENOENT EACCES
truncate                 ENOSPC
inotify_add_watch        ENOSPC ENOENT ENOMEM
fanotify_init            EMFILE EPERM
fanotify_mark            ENOSPC EPERM
bpf perf_event_open      EPERM ENOMEM
mmap mremap              ENOMEM
mprotect                 ENOMEM
brk                      ENOMEM
clone clone3 fork vfork  EAGAIN ENOMEM
execve execveat          ENOENT EACCES ENOMEM
wait4 waitid             EINTR ECHILD
poll ppoll select pselect6  EINTR ENOMEM
epoll_wait epoll_pwait epoll_pwait2  EINTR
epoll_ctl                ENOMEM ENOSPC
sendmsg sendto           EAGAIN EPIPE ENOBUFS EINTR
recvmsg recvfrom         EAGAIN EINTR ENOMEM
bind connect             EACCES EADDRINUSE ECONNREFUSED
listen                   EADDRINUSE
accept accept4           EMFILE EAGAIN ECONNABORTED
getsockopt setsockopt getsockname getpeername  ENOBUFS
prctl                    EPERM EINVAL
setsid setpgid           EPERM ESRCH
getsid getpgid           ESRCH
setuid setgid setresuid setresgid setreuid setregid setgroups setpriority ioprio_set  EPERM EAGAIN
sched_setaffinity sched_setscheduler prlimit64 setrlimit  EPERM
sched_getaffinity        EINVAL
getrandom                EINTR short
nanosleep clock_nanosleep  EINTR
close_range              ENOSYS ENOMEM
rt_sigtimedwait          EINTR EAGAIN
process_vm_readv         EPERM ESRCH
getcwd                   ENOENT
capset                   EPERM
sendfile splice          EIO EAGAIN EINVAL
"""

ERRORS = {}
for _line in _TABLE.strip().splitlines():
    _words = _line.split()
    for _call in [word for word in _words if word[0].islower() and word != "short"]:
        ERRORS[_call] = [word for word in _words if word[0].isupper() or word == "short"]


def faults_of(call: str, what: str) -> list:
    """Every way in which this call may go wrong; "kill": the process is killed as it makes it."""
    never_fails = (call, what) == ("write", "anon_inode:[eventfd]")  # nothing is allocated, and a count of 1 always fits
    return [*([] if never_fails else ERRORS.get(call, [])), "kill"]


def options_of(fault: str) -> list:
    """The words that tell the injector."""
    if fault in ("short", "kill"):
        return ["--" + fault]
    return ["--error", str(getattr(errno, fault))]
