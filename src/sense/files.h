#pragma once
// Small files of the kernel's that hold one value. What cannot be read, is empty or is not a number is unknown with its
// reason, and never 0: drivers answer EBUSY while a GPU resets, EPERM without permission, and nothing at all.

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/snapshot.h"

namespace lull {

template <class T>
using FileValue = std::expected<T, Absence>;

Absence absence_of_errno(int error);

// All of a file, up to a page, as it is.
FileValue<std::string> read_bytes(const std::string& path);
// Its first line without blanks around it.
FileValue<std::string> read_text(const std::string& path);
FileValue<double> read_number(const std::string& path, double scale = 1);
FileValue<std::uint64_t> read_count(const std::string& path);
// The same of what is never negative: a count, or millivolts.
FileValue<double> read_unsigned(const std::string& path, double scale = 1);
// "0x1002"
FileValue<std::uint64_t> read_hex(const std::string& path);

bool file_exists(const std::string& path);
// The folder itself, all links followed; empty: there is none.
std::string real_path(const std::string& path);
std::string_view last_part(std::string_view path);
// Names in a folder that are `prefix` and a number, by that number: "card0", "card1". Nothing where it cannot be read.
std::vector<std::string> numbered(const std::string& folder, std::string_view prefix);

// A number into a reading, or why there is none.
void put(Reading& reading, Metric metric, const FileValue<double>& value);

// For `lull status --dump`: every file of `sys` that is read from here on is copied to FOLDER/sys, so that lull can
// read that instead; one that cannot be read leaves its error in NAME.error. To be called before there are threads.
// Links that lead to them are made by keep_link().
void keep_files_in(std::string folder, const std::string& sys);
bool keeps_files();
void keep_link(const std::string& path);

}  // namespace lull
