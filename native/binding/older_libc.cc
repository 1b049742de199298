// What the standard library's code refers to and a glibc before 2.32 doesn't have.

/// Whether the process has one thread: false always, which costs atomic operations where there is only one.
extern "C" __attribute__((visibility("hidden"))) char __libc_single_threaded;
char __libc_single_threaded = 0;
