// What g++ 12's static runtime, and lull, want of a glibc newer than 2.31. packaging/tarball links it into the programs
// of the tarball, and nothing else does. Hidden: a program that loads one of our libraries keeps its own.
#include <link.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#define HIDDEN __attribute__((visibility("hidden")))

namespace {

// As <dlfcn.h> of glibc 2.35 has it.
struct FoundObject {
  unsigned long long flags;
  void* map_start;
  void* map_end;
  link_map* map;
  void* eh_frame;
  unsigned long long reserved[7];
};

struct Search {
  ElfW(Addr) pc;
  FoundObject* found;
};

int look(dl_phdr_info* info, std::size_t, void* data) {
  const auto& search = *static_cast<Search*>(data);
  const ElfW(Phdr)* load = nullptr;
  const ElfW(Phdr)* eh_frame = nullptr;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type == PT_LOAD && search.pc - (info->dlpi_addr + part.p_vaddr) < part.p_memsz) load = &part;
    if (part.p_type == PT_GNU_EH_FRAME) eh_frame = &part;
  }
  if (load == nullptr || eh_frame == nullptr) return 0;
  const auto at = [&](ElfW(Addr) offset) { return reinterpret_cast<void*>(info->dlpi_addr + offset); };
  *search.found = {0, at(load->p_vaddr), at(load->p_vaddr + load->p_memsz), nullptr, at(eh_frame->p_vaddr), {}};
  return 1;
}

}  // namespace

extern "C" {

// Since 2.32, for libstdc++: "there may be threads" is always a right answer.
HIDDEN char __libc_single_threaded = 0;

// Since 2.35. libgcc_eh.a asks nobody else where a function's unwind tables are: without it no exception is caught.
HIDDEN int _dl_find_object(void* pc, FoundObject* found) {
  Search search{reinterpret_cast<ElfW(Addr)>(pc), found};
  return ::dl_iterate_phdr(look, &search) == 1 ? 0 : -1;
}

// Since 2.36, for std::random_device.
HIDDEN std::uint32_t arc4random() {
  std::uint32_t value = 0;
  if (::syscall(SYS_getrandom, &value, sizeof value, 0) != sizeof value) std::abort();
  return value;
}

// Since 2.34.
HIDDEN int close_range(unsigned first, unsigned last, int flags) noexcept {
  return static_cast<int>(::syscall(SYS_close_range, first, last, flags));
}
}
