#include "act/python_stack.h"

#include <cxxabi.h>
#include <dirent.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "act/call_site.h"
#include "act/elf_symbols.h"
#include "act/reading_rights.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/text.h"
#include "base/try.h"

namespace lull {
namespace {

using Address = std::uint64_t;

constexpr unsigned kMostInterpreters = 64;
constexpr unsigned kMostThreads = 512;
constexpr unsigned kMostFrames = 256;
constexpr std::size_t kMostText = 4096;
constexpr std::size_t kMostLineTable = 1U << 20;
constexpr std::size_t kStackBytes = 32U << 10;  // of a native stack that is looked through
constexpr unsigned kTries = 3;
// Of one process, however its memory is arranged: its frames may be a circle, and its tables may share their bytes.
constexpr unsigned kMostSteps = 4096;              // from frame to frame of a thread
constexpr std::size_t kMostFrameBytes = 1U << 20;  // of all names
constexpr std::size_t kMostCodeBytes = 32U << 20;  // of all line tables

// Where a version of CPython keeps what we follow. All are offsets in bytes.
struct Layout {
  unsigned minor = 0;
  Address interpreters = 0;  // in _PyRuntime
  Address interpreter_next = 0;
  Address threads = 0;  // in an interpreter
  Address thread_next = 0;
  Address thread_id = 0;         // pthread_t
  Address native_thread_id = 0;  // 0: none
  Address frame = 0;             // in a thread; with `cframe` in what that points to
  std::optional<Address> cframe = {};
  Address frame_code = 0;
  Address frame_previous = 0;
  Address frame_instruction = 0;  // a pointer; before 3.11 an int: how far it is
  std::optional<Address> frame_owner = {};
  Address code_file = 0;
  Address code_name = 0;
  Address code_first_line = 0;
  Address code_lines = 0;
  Address code_begin = 0;  // its first instruction; before 3.11 not used
  Address text_length = 16;
  Address text_state = 32;
  Address ascii_size = 48;
  Address bytes_size = 16;
  Address bytes_data = 32;
  Address object_type = 8;
  Address type_name = 24;
  unsigned first_foreign_owner = 3;  // frames of the C stack, which are no Python code
};

// From the headers of each version.
constexpr std::array<Layout, 4> kLayouts = {{
    {.minor = 9,
     .interpreters = 32,
     .threads = 8,
     .thread_next = 8,
     .thread_id = 176,
     .frame = 24,
     .frame_code = 32,
     .frame_previous = 24,
     .frame_instruction = 104,
     .code_file = 104,
     .code_name = 112,
     .code_first_line = 40,
     .code_lines = 120},
    {.minor = 10,
     .interpreters = 32,
     .threads = 8,
     .thread_next = 8,
     .thread_id = 176,
     .frame = 24,
     .frame_code = 32,
     .frame_previous = 24,
     .frame_instruction = 96,
     .code_file = 104,
     .code_name = 112,
     .code_first_line = 40,
     .code_lines = 120},
    {.minor = 11,
     .interpreters = 40,
     .threads = 16,
     .thread_next = 8,
     .thread_id = 152,
     .native_thread_id = 160,
     .frame = 8,
     .cframe = 56,
     .frame_code = 32,
     .frame_previous = 48,
     .frame_instruction = 56,
     .frame_owner = 69,
     .code_file = 112,
     .code_name = 128,
     .code_first_line = 72,
     .code_lines = 136,
     .code_begin = 184},
    {.minor = 12,
     .interpreters = 40,
     .threads = 72,
     .thread_next = 8,
     .thread_id = 136,
     .native_thread_id = 144,
     .frame = 0,
     .cframe = 56,
     .frame_code = 0,
     .frame_previous = 8,
     .frame_instruction = 56,
     .frame_owner = 70,
     .code_file = 112,
     .code_name = 128,
     .code_first_line = 68,
     .code_lines = 136,
     .code_begin = 192,
     .ascii_size = 40},
}};

// System calls that threads wait in, for those whose native functions have no names.
struct WaitingCall {
  long number = 0;
  std::string_view name;
};
constexpr std::array kWaitingCalls = {
    WaitingCall{SYS_futex, "futex"},
    WaitingCall{SYS_read, "read"},
    WaitingCall{SYS_write, "write"},
    WaitingCall{SYS_ioctl, "ioctl"},
    WaitingCall{SYS_ppoll, "ppoll"},
    WaitingCall{SYS_pselect6, "pselect6"},
    WaitingCall{SYS_epoll_pwait, "epoll_pwait"},
    WaitingCall{SYS_clock_nanosleep, "clock_nanosleep"},
    WaitingCall{SYS_wait4, "wait4"},
    WaitingCall{SYS_waitid, "waitid"},
    WaitingCall{SYS_recvfrom, "recvfrom"},
    WaitingCall{SYS_recvmsg, "recvmsg"},
    WaitingCall{SYS_accept4, "accept4"},
#ifdef SYS_poll  // older machines than arm64 have more ways
    WaitingCall{SYS_poll, "poll"},
    WaitingCall{SYS_select, "select"},
    WaitingCall{SYS_epoll_wait, "epoll_wait"},
    WaitingCall{SYS_accept, "accept"},
#endif
};

// Another process's memory.
class Memory {
 public:
  explicit Memory(pid_t pid) : pid_(pid) {}

  // All of it, or an error: EFAULT where nothing is mapped there.
  Result<> read(Address from, void* into, std::size_t size) const {
    iovec local{into, size};
    iovec remote{reinterpret_cast<void*>(from), size};  // NOLINT(performance-no-int-to-ptr): of another process
    const ssize_t got = ::process_vm_readv(pid_, &local, 1, &remote, 1, 0);
    if (got < 0) return fail(errno, fmt::format("memory of process {}", pid_));
    if (static_cast<std::size_t>(got) != size) return fail(EFAULT, fmt::format("memory of process {}", pid_));
    return {};
  }
  template <class T>
  Result<T> value(Address from) const {
    T found{};
    TRY(read(from, &found, sizeof found));
    return found;
  }
  Result<Address> pointer(Address from) const { return value<Address>(from); }
  Result<std::string> bytes(Address from, std::size_t size) const {
    std::string text(size, '\0');
    TRY(read(from, text.data(), size));
    return text;
  }
  // As many of these as are mapped.
  std::string some(Address from, std::size_t size) const {
    std::string text(size, '\0');
    iovec local{text.data(), size};
    iovec remote{reinterpret_cast<void*>(from), size};  // NOLINT(performance-no-int-to-ptr)
    const ssize_t got = ::process_vm_readv(pid_, &local, 1, &remote, 1, 0);
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return text;
  }

 private:
  pid_t pid_;
};

struct Mapping {
  Address begin = 0;
  Address end = 0;
  Address offset = 0;
  bool executable = false;
  std::string file;
};

std::vector<Mapping> mappings_of(std::string_view maps) {
  std::vector<Mapping> found;
  for (const std::string_view line : split(maps, '\n')) {
    const std::string text(line);
    Mapping one;
    std::array<char, 5> rights{};
    int path = 0;
    if (std::sscanf(text.c_str(), "%lx-%lx %4s %lx %*s %*s %n", &one.begin, &one.end, rights.data(), &one.offset,
                    &path) < 4)
      continue;
    one.executable = rights[2] == 'x';
    if (path > 0 && static_cast<std::size_t>(path) < text.size())
      one.file = text.substr(static_cast<std::size_t>(path));
    found.push_back(std::move(one));
  }
  return found;
}

std::string base_name(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

// "libpython3.11.so.1.0", "python3.9": the number behind the point.
std::optional<unsigned> minor_in(std::string_view name) {
  constexpr std::string_view kBefore = "python3.";
  const std::size_t at = name.find(kBefore);
  if (at == std::string_view::npos) return std::nullopt;
  unsigned number = 0;
  bool any = false;
  for (const char one : name.substr(at + kBefore.size())) {
    if (one < '0' || one > '9' || number > 99) break;
    number = number * 10 + static_cast<unsigned>(one - '0');
    any = true;
  }
  return any ? std::optional(number) : std::nullopt;
}

// The files that a process has mapped, with the symbols of each that was asked for.
class Images {
 public:
  Images(pid_t pid, std::vector<Mapping> mappings) : pid_(pid), mappings_(std::move(mappings)) {}

  const std::vector<Mapping>& mappings() const { return mappings_; }
  const Mapping* at(Address address) const {
    auto next = std::ranges::upper_bound(mappings_, address, {}, &Mapping::begin);
    if (next == mappings_.begin()) return nullptr;
    --next;
    return address < next->end ? &*next : nullptr;
  }
  // Null: it cannot be read, or has none.
  const ElfSymbols* symbols(const std::string& file) {
    const auto [place, fresh] = symbols_.try_emplace(file);
    // As the process sees it, which may be in a container; or as we do, where only its root folder differs.
    if (fresh)
      for (const std::string& path : {fmt::format("/proc/{}/root{}", pid_, file), file})
        if (auto read = ElfSymbols::read(path)) {
          place->second = std::make_unique<ElfSymbols>(*std::move(read));
          break;
        }
    return place->second.get();
  }
  // What to add to an address of the file.
  Address bias(const std::string& file, const ElfSymbols& elf) const {
    for (const Mapping& one : mappings_)
      if (one.file == file) return one.begin - one.offset - elf.base();
    return 0;
  }
  // "ncclAllReduce" and the file it is of.
  std::optional<std::pair<std::string, std::string>> function(Address address) {
    const Mapping* const mapping = at(address);
    if (mapping == nullptr || !mapping->executable || !mapping->file.starts_with('/')) return std::nullopt;
    const std::string file = mapping->file;
    const ElfSymbols* const elf = symbols(file);
    if (elf == nullptr) return std::nullopt;
    std::string name = elf->function_at(address - bias(file, *elf));
    if (name.empty()) return std::nullopt;
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> plain(
        abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
    if (plain != nullptr) name = std::string(plain.get()).substr(0, 120);
    return std::pair(std::move(name), base_name(file));
  }

 private:
  pid_t pid_;
  std::vector<Mapping> mappings_;
  std::map<std::string, std::unique_ptr<ElfSymbols>> symbols_;
};

// What is known of an interpreter once it was found.
struct Interpreter {
  Layout layout;
  Address runtime = 0;
};

// The offsets that CPython 3.13 and 3.14 publish at the beginning of _PyRuntime, as 64-bit numbers behind the cookie.
// 3.14 has more of them in between.
Result<Layout> published_layout(const Memory& memory, Address runtime, unsigned minor) {
  constexpr std::size_t kNumbers = 96;
  std::array<Address, kNumbers> number{};
  TRY(memory.read(runtime, number.data(), sizeof number));
  const bool newer = minor >= 14;
  std::size_t at = 3;  // cookie, version, free_threaded
  const auto take = [&](std::size_t count) { return std::exchange(at, at + count); };
  const std::size_t runtime_state = take(3);
  const std::size_t interpreter = take(newer ? 16 : 13);
  const std::size_t thread = take(9);
  const std::size_t frame = take(newer ? 8 : 6);
  const std::size_t code = take(newer ? 11 : 10);
  const std::size_t object = take(2);
  const std::size_t type = take(4);
  (void)take(newer ? 18 : 14);  // tuple, list, set (since 3.14), dict, float, long
  const std::size_t bytes = take(3);
  const std::size_t text = take(4);
  const Layout layout{.minor = minor,
                      .interpreters = number[runtime_state + 2],
                      .interpreter_next = number[interpreter + 2],
                      .threads = number[interpreter + 3],
                      .thread_next = number[thread + 2],
                      .thread_id = number[thread + 5],
                      .native_thread_id = number[thread + 6],
                      .frame = number[thread + 4],
                      .frame_code = number[frame + 2],
                      .frame_previous = number[frame + 1],
                      .frame_instruction = number[frame + 3],
                      .frame_owner = number[frame + 5],
                      .code_file = number[code + 1],
                      .code_name = number[code + 3],
                      .code_first_line = number[code + 5],
                      .code_lines = number[code + 4],
                      .code_begin = number[code + 9],
                      .text_length = number[text + 2],
                      .text_state = number[text + 1],
                      .ascii_size = number[text + 3],
                      .bytes_size = number[bytes + 1],
                      .bytes_data = number[bytes + 2],
                      .object_type = number[object + 1],
                      .type_name = number[type + 1]};
  return layout;
}

// "python3.11", "libpython3.11.so.1.0", but not "pythonmagick.so".
bool names_interpreter(std::string_view name) {
  return name.starts_with("libpython") || (name.starts_with("python") && !name.contains(".so"));
}

constexpr std::string_view kKnown = "is not known (CPython 3.9 to 3.14 is): its stack is not read";

Result<Interpreter> find_interpreter(const Memory& memory, Images& images) {
  std::set<std::string> looked;
  std::string unknown;
  for (const Mapping& one : images.mappings()) {
    const std::string name = base_name(one.file);
    if (!one.file.starts_with('/') || !names_interpreter(name)) continue;
    if (one.executable && unknown.empty()) unknown = one.file;
    if (!looked.insert(one.file).second) continue;
    const ElfSymbols* const elf = images.symbols(one.file);
    const auto symbol = elf != nullptr ? elf->find("_PyRuntime") : std::nullopt;
    if (!symbol) continue;
    const Address bias = images.bias(one.file, *elf);
    const Address runtime = *symbol + bias;
    const std::string cookie = TRY(memory.bytes(runtime, 8));
    std::optional<unsigned> minor;
    if (cookie == "xdebugpy") {
      const Address version = TRY(memory.pointer(runtime + 8));
      minor = static_cast<unsigned>(version >> 16 & 0xFF);
      if (version >> 24 != 3) return fail(fmt::format("CPython {:#x} {}", version, kKnown));
      if (minor == 13 || minor == 14) return Interpreter{TRY(published_layout(memory, runtime, *minor)), runtime};
    } else if (const auto version = elf->find("Py_Version")) {
      minor = static_cast<unsigned>(TRY(memory.pointer(*version + bias)) >> 16 & 0xFF);
    } else {
      minor = minor_in(name);  // 3.9 and 3.10 tell it nowhere else; the first code object shows whether it is right
    }
    const auto layout = std::ranges::find_if(kLayouts, [&](const Layout& known) { return known.minor == minor; });
    if (layout == kLayouts.end())
      return fail(minor ? fmt::format("CPython 3.{} {}", *minor, kKnown)
                        : fmt::format("the version of {} is not told", one.file));
    return Interpreter{*layout, runtime};
  }
  if (unknown.empty()) return fail(ENOEXEC, "no Python program");
  return fail(fmt::format("the interpreter {} {}", unknown, kKnown));
}

class Reader {
 public:
  Reader(pid_t pid, const Memory& memory, Images& images, Interpreter interpreter)
      : pid_(pid), memory_(memory), images_(images), layout_(interpreter.layout), runtime_(interpreter.runtime) {}

  Result<std::vector<PythonThread>> threads() {
    std::vector<PythonThread> found;
    Address interpreter = TRY(memory_.pointer(runtime_ + layout_.interpreters));
    for (unsigned i = 0; interpreter != 0 && i < kMostInterpreters; ++i) {
      Address thread = TRY(memory_.pointer(interpreter + layout_.threads));
      for (; thread != 0 && found.size() < kMostThreads; thread = TRY(memory_.pointer(thread + layout_.thread_next)))
        found.push_back(TRY(read_thread(thread)));
      interpreter = TRY(memory_.pointer(interpreter + layout_.interpreter_next));
    }
    std::ranges::sort(found, {}, [&](const PythonThread& one) { return std::pair(one.id != pid_, one.id); });
    return found;
  }

 private:
  struct Code {
    std::string file;
    std::string name;
    unsigned first_line = 0;
    std::string lines;
  };

  Result<PythonThread> read_thread(Address thread) {
    PythonThread found;
    for (unsigned i = 0; i < kTries; ++i) {
      found.frames.clear();
      const Address first = TRY(first_frame(thread));
      const auto read = read_frames(first, found);
      const auto after = first_frame(thread);
      found.changing = !read || !after || *after != first;
      if (!found.changing) break;
      if (!read && i + 1 == kTries) return std::unexpected(read.error());
    }
    found.id = TRY(native_id(thread));
    if (const auto name = read_file(fmt::format("/proc/{}/task/{}/comm", pid_, found.id)); name && found.id != 0)
      found.name = trim(*name);
    if (found.id != 0) found.waits_in = waits_in(found.id);
    return found;
  }

  Result<Address> first_frame(Address thread) const {
    if (!layout_.cframe) return memory_.pointer(thread + layout_.frame);
    const Address cframe = TRY(memory_.pointer(thread + *layout_.cframe));
    return cframe == 0 ? Result<Address>(Address{0}) : memory_.pointer(cframe + layout_.frame);
  }

  Result<> read_frames(Address frame, PythonThread& into) {
    for (unsigned steps = 0; frame != 0; frame = TRY(memory_.pointer(frame + layout_.frame_previous)), ++steps) {
      if (into.frames.size() == kMostFrames || steps == kMostSteps || frame_bytes_ > kMostFrameBytes) {
        into.cut = true;
        break;
      }
      if (layout_.frame_owner &&
          TRY(memory_.value<std::uint8_t>(frame + *layout_.frame_owner)) >= layout_.first_foreign_owner)
        continue;
      const Address code = TRY(memory_.pointer(frame + layout_.frame_code)) & ~Address{7};  // the lowest bits are tags
      if (!TRY(is_code(code))) {
        if (layout_.minor >= 13) continue;  // None, in a frame of the interpreter's own
        return fail(fmt::format("the frames of process {} are not those of CPython 3.{}", pid_, layout_.minor));
      }
      into.frames.push_back(TRY(read_frame(frame, code)));
      frame_bytes_ += sizeof(PythonFrame) + into.frames.back().file.size() + into.frames.back().function.size();
    }
    return {};
  }

  Result<bool> is_code(Address object) {
    if (object == 0) return false;
    const Address type = TRY(memory_.pointer(object + layout_.object_type));
    if (type == code_type_ && type != 0) return true;
    const Address name = TRY(memory_.pointer(type + layout_.type_name));
    if (!memory_.some(name, 5).starts_with(std::string_view("code\0", 5))) return false;
    code_type_ = type;
    return true;
  }

  Result<PythonFrame> read_frame(Address frame, Address code) {
    std::unique_ptr<Code>& known = codes_[code];
    if (!known) known = std::make_unique<Code>(TRY(read_code(code)));
    PythonFrame found{known->file, 0, known->name};
    if (layout_.minor < 11) {
      const auto at = TRY(memory_.value<std::int32_t>(frame + layout_.frame_instruction));
      found.line = layout_.minor == 9 ? line_by_lnotab(known->lines, known->first_line, at)
                                      : line_by_ranges(known->lines, known->first_line, std::int64_t{at} * 2);
    } else {
      const Address instruction = TRY(memory_.pointer(frame + layout_.frame_instruction));
      const auto at = static_cast<std::int64_t>(instruction - code - layout_.code_begin);
      // It is one unit before the code at the least; a copy of the code elsewhere (without the GIL) tells no line.
      if (at >= -2) found.line = line_by_locations(known->lines, known->first_line, at / 2);
    }
    return found;
  }

  Result<Code> read_code(Address code) {
    Code found;
    found.file = TRY(text(code + layout_.code_file));
    found.name = TRY(text(code + layout_.code_name));
    found.first_line = TRY(memory_.value<std::uint32_t>(code + layout_.code_first_line));
    const Address lines = TRY(memory_.pointer(code + layout_.code_lines));
    const Address size = TRY(memory_.pointer(lines + layout_.bytes_size));
    code_bytes_ += sizeof found + found.file.size() + found.name.size();
    if (size > kMostLineTable || code_bytes_ + size > kMostCodeBytes) return found;  // it tells no lines
    code_bytes_ += size;
    found.lines = TRY(memory_.bytes(lines + layout_.bytes_data, size));
    return found;
  }

  // The str that is pointed to from there, as UTF-8.
  Result<std::string> text(Address from) const {
    const Address object = TRY(memory_.pointer(from));
    const Address length = TRY(memory_.pointer(object + layout_.text_length));
    const auto state = TRY(memory_.value<std::uint32_t>(object + layout_.text_state));
    // Before them stands how it is interned: in two bits, or in one or two bytes by some builds of 3.14.
    unsigned kind = 0;
    bool ascii = false;
    for (const unsigned shift : {2U, 16U, 8U}) {
      const unsigned bits = state >> shift;
      if ((bits & 7) != 1 && (bits & 7) != 2 && (bits & 7) != 4) continue;
      if ((bits >> 3 & 1) == 0) continue;  // its characters are elsewhere
      kind = bits & 7;
      ascii = (bits >> 4 & 1) != 0;
      break;
    }
    if (kind == 0) return fail(fmt::format("a name of process {} is not readable", pid_));
    const std::size_t count = std::min<Address>(length, kMostText);
    // Behind the head of a str that is not ASCII stand the length and place of its UTF-8, before 3.12 a third number.
    const Address head = ascii ? layout_.ascii_size : layout_.ascii_size + (layout_.minor >= 12 ? 16 : 24);
    const std::string raw = TRY(memory_.bytes(object + head, count * kind));
    if (ascii) return raw;
    std::string utf8;
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t one = 0;
      std::memcpy(&one, raw.data() + i * kind, kind);
      if (one < 0x80) {
        utf8 += static_cast<char>(one);
      } else if (one < 0x800) {
        utf8 += static_cast<char>(0xC0 | one >> 6);
        utf8 += static_cast<char>(0x80 | (one & 0x3F));
      } else if (one < 0x10000) {
        utf8 += static_cast<char>(0xE0 | one >> 12);
        utf8 += static_cast<char>(0x80 | (one >> 6 & 0x3F));
        utf8 += static_cast<char>(0x80 | (one & 0x3F));
      } else {
        utf8 += static_cast<char>(0xF0 | (one >> 18 & 7));
        utf8 += static_cast<char>(0x80 | (one >> 12 & 0x3F));
        utf8 += static_cast<char>(0x80 | (one >> 6 & 0x3F));
        utf8 += static_cast<char>(0x80 | (one & 0x3F));
      }
    }
    return utf8;
  }

  // Before 3.11 a thread is known by its pthread_t alone. glibc keeps the number of the thread there; the kernel says
  // whether that is one of this process.
  Result<pid_t> native_id(Address thread) const {
    constexpr Address kIdInPthread = kThisProcessor == Processor::aarch64 ? 208 : 720;
    Address from = thread + layout_.native_thread_id;
    if (layout_.native_thread_id == 0) from = TRY(memory_.pointer(thread + layout_.thread_id)) + kIdInPthread;
    const auto id = memory_.value<std::uint32_t>(from);
    if (!id || *id == 0 || ::access(fmt::format("/proc/{}/task/{}", pid_, *id).c_str(), F_OK) != 0) return 0;
    return static_cast<pid_t>(*id);
  }

  // The words of the thread's stack that are return addresses, the innermost first, up to the interpreter's loop. Old
  // ones may still stand there, so this is what is likely, not what is sure.
  std::string waits_in(pid_t id) {
    const auto call = read_file(fmt::format("/proc/{}/task/{}/syscall", pid_, id));
    if (!call) return "";
    const std::size_t blank = trim(*call).rfind(' ');
    if (blank == std::string_view::npos) return "";  // "running"
    const std::string line(trim(*call));
    const std::size_t before = line.rfind(' ', blank - 1);
    if (before == std::string::npos) return "";
    const Address stack = std::strtoull(line.c_str() + before + 1, nullptr, 16);
    const Address place = std::strtoull(line.c_str() + blank + 1, nullptr, 16);
    // The kernel is called from libc as a rule; who called libc says more, and more than who called that one.
    auto found = images_.function(place);
    const std::string words = memory_.some(stack, stack_size(stack));
    const auto is_said = [&] { return found && !is_of_libc(found->second); };
    for (std::size_t at = 0; at + sizeof(Address) <= words.size() && !is_said(); at += sizeof(Address)) {
      Address word = 0;
      std::memcpy(&word, words.data() + at, sizeof word);
      word = without_signature(word);
      const Mapping* const mapping = images_.at(word);
      if (mapping == nullptr || !mapping->executable || !follows_call(word)) continue;
      const auto function = images_.function(word);
      if (!function) continue;
      if (is_interpreter(*function)) break;
      if (!found || !is_of_libc(function->second)) found = function;
    }
    if (found) return fmt::format("{} ({})", found->first, found->second);
    const auto name = std::ranges::find(kWaitingCalls, std::strtol(line.c_str(), nullptr, 10), &WaitingCall::number);
    return name == kWaitingCalls.end() ? "" : fmt::format("{} (system call)", name->name);
  }
  std::size_t stack_size(Address stack) const {
    const Mapping* const mapping = images_.at(stack);
    return mapping == nullptr ? 0 : std::min<Address>(mapping->end - stack, kStackBytes);
  }
  static bool is_interpreter(const std::pair<std::string, std::string>& function) {
    return function.second.starts_with("python") || function.second.starts_with("libpython");
  }
  static bool is_of_libc(std::string_view file) {
    return file.starts_with("libc.so") || file.starts_with("libc-") || file.starts_with("libpthread") ||
           file.starts_with("ld-linux") || file.starts_with("ld-2") || file.starts_with("libstdc++");
  }
  bool follows_call(Address place) const { return ends_with_call(memory_.some(place - kLongestCall, kLongestCall)); }

  pid_t pid_;
  const Memory& memory_;
  Images& images_;
  Layout layout_;
  Address runtime_;
  Address code_type_ = 0;
  std::map<Address, std::unique_ptr<Code>> codes_;
  std::size_t code_bytes_ = 0;
  std::size_t frame_bytes_ = 0;
};

std::string rank_of(pid_t pid) {
  const auto environment = read_file(fmt::format("/proc/{}/environ", pid));
  if (!environment) return "";
  for (const std::string_view name : {"RANK=", "OMPI_COMM_WORLD_RANK=", "PMI_RANK=", "SLURM_PROCID=", "LOCAL_RANK="})
    for (const std::string_view variable : split(*environment, '\0'))
      if (variable.starts_with(name) && to_unsigned(variable.substr(name.size())))
        return std::string(variable.substr(name.size()));
  return "";
}

}  // namespace

std::string PythonFrame::text() const {
  const std::string place = printable(base_name(file)) + (line > 0 ? fmt::format(":{}", line) : "");
  return place + " in " + printable(function);
}

// Pairs of how many bytes the code goes on and how many lines the source does.
unsigned line_by_lnotab(std::string_view table, unsigned first_line, std::int64_t byte) {
  std::int64_t at = 0;
  std::int64_t line = first_line;
  for (std::size_t i = 0; i + 1 < table.size(); i += 2) {
    at += static_cast<unsigned char>(table[i]);
    if (at > byte) break;
    line += static_cast<signed char>(table[i + 1]);
  }
  return line > 0 ? static_cast<unsigned>(line) : 0;
}

// Pairs of how many bytes a range has and how many lines it is behind the one before; -128: it is of no line.
unsigned line_by_ranges(std::string_view table, unsigned first_line, std::int64_t byte) {
  constexpr int kNoLine = -128;
  std::int64_t end = 0;
  std::int64_t line = first_line;
  for (std::size_t i = 0; i + 1 < table.size(); i += 2) {
    const int lines = static_cast<signed char>(table[i + 1]);
    end += static_cast<unsigned char>(table[i]);
    if (lines != kNoLine) line += lines;
    if (byte < end) return lines == kNoLine || line <= 0 ? 0 : static_cast<unsigned>(line);
  }
  return byte < 0 ? first_line : 0;
}

// Entries of a kind, a number of code units, and numbers of six bits a byte: how many lines it is behind the one before
// among them.
unsigned line_by_locations(std::string_view table, unsigned first_line, std::int64_t unit) {
  if (unit < 0) return first_line;
  std::size_t i = 0;
  const auto number = [&] {
    std::uint32_t value = 0;
    for (unsigned shift = 0; i < table.size() && shift < 32; shift += 6) {
      const auto byte = static_cast<unsigned char>(table[i++]);
      value |= static_cast<std::uint32_t>(byte & 63) << shift;
      if ((byte & 64) == 0) break;
    }
    return value;
  };
  const auto with_sign = [&] {
    const std::uint32_t value = number();
    return (value & 1) != 0 ? -static_cast<std::int64_t>(value >> 1) : static_cast<std::int64_t>(value >> 1);
  };
  std::int64_t line = first_line;
  for (std::int64_t end = 0; i < table.size();) {
    const auto byte = static_cast<unsigned char>(table[i++]);
    const unsigned kind = byte >> 3 & 15;
    bool known = true;
    if (kind == 15) {
      known = false;
    } else if (kind == 14) {
      line += with_sign();
      for (int skipped = 0; skipped < 3; ++skipped) (void)number();
    } else if (kind == 13) {
      line += with_sign();
    } else if (kind >= 10) {
      line += kind - 10;
      i += 2;
    } else {
      i += 1;
    }
    end += (byte & 7) + 1;
    if (unit < end) return known && line > 0 ? static_cast<unsigned>(line) : 0;
  }
  return 0;
}

Result<PythonProcess> read_python_stacks(pid_t pid) {
  const auto maps = read_file(fmt::format("/proc/{}/maps", pid));
  if (!maps && (maps.error().errno_value == EACCES || maps.error().errno_value == EPERM))
    return fail(EPERM, forbidden_text(reading_rights(pid)));
  if (!maps) return std::unexpected(maps.error());
  Images images(pid, mappings_of(*maps));
  const Memory memory(pid);
  const auto denied = [&](Error error) -> Error {
    if (error.errno_value == EPERM || error.errno_value == EACCES)
      return {.what = forbidden_text(reading_rights(pid)), .errno_value = EPERM};
    return error;
  };
  const auto interpreter = find_interpreter(memory, images);
  if (!interpreter && interpreter.error().errno_value == 0)
    return fail(fmt::format("process {}: {}", pid, printable(interpreter.error().what)));
  if (!interpreter) return std::unexpected(denied(interpreter.error()));
  PythonProcess found;
  found.pid = pid;
  if (const auto entry = read_process_entry(pid)) found.parent = entry->parent;
  found.version = fmt::format("3.{}", interpreter->layout.minor);
  found.rank = rank_of(pid);
  auto threads = Reader(pid, memory, images, *interpreter).threads();
  if (!threads) return std::unexpected(denied(threads.error()));
  found.threads = *std::move(threads);
  return found;
}

// A line each: the process, its threads, their frames. Names cannot contain a tab or an end of line: printable() makes
// them visible.
std::string encode(const PythonProcess& process) {
  std::string text =
      fmt::format("P\t{}\t{}\t{}\t{}\n", process.pid, process.parent, process.version, printable(process.rank));
  for (const PythonThread& one : process.threads) {
    text += fmt::format("T\t{}\t{}\t{}\t{}\t{}\n", one.id, one.cut ? 1 : 0, one.changing ? 1 : 0, printable(one.name),
                        printable(one.waits_in));
    for (const PythonFrame& frame : one.frames)
      text += fmt::format("F\t{}\t{}\t{}\n", frame.line, printable(frame.file), printable(frame.function));
  }
  return text;
}

std::optional<PythonProcess> decode_python_process(std::string_view text) {
  PythonProcess process;
  for (const std::string_view line : split(text, '\n')) {
    const std::vector<std::string_view> cells = split(line, '\t');
    const auto number = [&](std::size_t i) { return i < cells.size() ? to_unsigned(cells[i]) : std::nullopt; };
    if (line.empty()) continue;
    if (cells[0] == "P" && cells.size() == 5 && number(1) && number(2) && process.pid == 0) {
      process.pid = static_cast<pid_t>(*number(1));
      process.parent = static_cast<pid_t>(*number(2));
      process.version = cells[3];
      process.rank = cells[4];
    } else if (cells[0] == "T" && cells.size() == 6 && number(1) && process.pid != 0) {
      process.threads.push_back({.id = static_cast<pid_t>(*number(1)),
                                 .name = std::string(cells[4]),
                                 .frames = {},
                                 .cut = cells[2] == "1",
                                 .changing = cells[3] == "1",
                                 .waits_in = std::string(cells[5])});
    } else if (cells[0] == "F" && cells.size() == 4 && number(1) && !process.threads.empty()) {
      process.threads.back().frames.push_back(
          {std::string(cells[2]), static_cast<unsigned>(*number(1)), std::string(cells[3])});
    } else {
      return std::nullopt;
    }
  }
  return process.pid == 0 ? std::nullopt : std::optional(std::move(process));
}

}  // namespace lull
