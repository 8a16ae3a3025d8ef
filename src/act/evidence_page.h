#pragma once
// The page of a folder of evidence, index.html: why, when, where, the picture of the readings, the stacks, and every
// other file as text. It needs nothing else and runs no script; all that comes from outside is escaped.

#include <string>
#include <string_view>
#include <vector>

#include "act/facts.h"
#include "act/picture.h"
#include "act/python_report.h"

namespace lull {

struct EvidenceFile {
  std::string name;  // ours
  std::string text;  // the beginning of a long one, kMostFileShown bytes and a few more
};
inline constexpr std::size_t kMostFileShown = std::size_t{64} << 10;

struct EvidencePage {
  std::string trouble = {};  // what is missing in the folder
  std::string where = {};    // where the job is, in a line
  std::vector<PythonGroup> python = {};
  std::string python_trouble = {};        // a line for each process that was not read
  std::vector<EvidenceFile> stacks = {};  // of gdb
  std::vector<EvidenceFile> files = {};   // the others
};
std::string evidence_page(const EvidencePage& page, const FiringFacts& facts, std::string_view host, const Past& past);

}  // namespace lull
