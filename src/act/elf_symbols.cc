#include "act/elf_symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/fd.h"
#include "base/try.h"

namespace lull {
namespace {

constexpr std::size_t kMostSymbols = 1U << 20;
constexpr std::size_t kMostName = 512;

constexpr std::uint64_t kMostTable = 256U << 20;

// A struct at an offset, where it is all there.
template <class T>
bool copy_at(std::string_view bytes, std::uint64_t offset, T& into) {
  if (offset > bytes.size() || sizeof(T) > bytes.size() - offset) return false;
  std::memcpy(&into, bytes.data() + offset, sizeof(T));
  return true;
}

}  // namespace

Result<ElfSymbols> ElfSymbols::read(const std::string& path) {
  const Fd file = TRY(open_file(path, O_RDONLY | O_NONBLOCK | O_NOCTTY));  // it may be a FIFO by now
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return fail(errno, path);
  if (!S_ISREG(status.st_mode)) return fail(path + ": no ELF file");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  return parse([&](std::uint64_t offset, std::uint64_t wanted) {
    if (offset >= size) return std::string();
    std::string part(std::min({wanted, size - offset, kMostTable}), '\0');
    const ssize_t got = ::pread(file.get(), part.data(), part.size(), static_cast<off_t>(offset));
    part.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return part;
  });
}

Result<ElfSymbols> ElfSymbols::parse(const Bytes& bytes) {
  Elf64_Ehdr header{};
  if (!copy_at(bytes(0, sizeof header), 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
    return fail("no 64-bit ELF file");
  ElfSymbols elf;
  Elf64_Phdr segment{};
  const std::string segments = bytes(header.e_phoff, std::uint64_t{header.e_phnum} * sizeof segment);
  for (std::uint64_t at = 0; copy_at(segments, at, segment); at += sizeof segment) {
    if (segment.p_type != PT_LOAD) continue;
    elf.base_ = segment.p_vaddr - segment.p_offset;
    break;
  }
  Elf64_Shdr section{};
  Elf64_Shdr names{};
  const std::string sections = bytes(header.e_shoff, std::uint64_t{header.e_shnum} * sizeof section);
  for (std::uint64_t place = 0; copy_at(sections, place, section); place += sizeof section) {
    if (section.sh_type != SHT_DYNSYM && section.sh_type != SHT_SYMTAB) continue;
    if (!copy_at(sections, std::uint64_t{section.sh_link} * sizeof names, names)) continue;
    const std::string text = bytes(names.sh_offset, names.sh_size);
    const std::string table = bytes(section.sh_offset, section.sh_size);
    Elf64_Sym symbol{};
    for (std::uint64_t at = 0; copy_at(table, at, symbol) && elf.symbols_.size() < kMostSymbols; at += sizeof symbol) {
      const unsigned type = ELF64_ST_TYPE(symbol.st_info);
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_name >= text.size()) continue;
      if (type != STT_FUNC && type != STT_OBJECT && type != STT_GNU_IFUNC) continue;
      const std::string_view name = std::string_view(text).substr(symbol.st_name, kMostName);
      elf.symbols_.push_back(
          {symbol.st_value, symbol.st_size, type != STT_OBJECT, std::string(name.substr(0, name.find('\0')))});
    }
  }
  std::ranges::stable_sort(elf.symbols_, {}, &Symbol::address);
  return elf;
}

std::optional<std::uint64_t> ElfSymbols::find(std::string_view name) const {
  const auto found = std::ranges::find(symbols_, name, &Symbol::name);
  return found == symbols_.end() ? std::nullopt : std::optional(found->address);
}

std::string ElfSymbols::function_at(std::uint64_t address) const {
  auto next = std::ranges::upper_bound(symbols_, address, {}, &Symbol::address);
  // Several names may begin at one address, and a variable may stand between.
  for (int looked = 0; next != symbols_.begin() && looked < 16; ++looked) {
    const Symbol& one = *--next;
    if (one.function && address - one.address < one.size) return one.name;
  }
  return "";
}

}  // namespace lull
