#pragma once
// Small helpers for text that several modules need: splitting, trimming, numbers
// without locale or exceptions, and the nearest valid word for an error message.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lull {

std::string_view trim(std::string_view text);
std::vector<std::string_view> split(std::string_view text, char separator);

// With the letters of ASCII in lower case, whatever the locale.
std::string lowered(std::string_view text);

// The whole text as a number, or nothing. No locale, no leading '+', no blanks.
std::optional<double> to_double(std::string_view text);
std::optional<std::uint64_t> to_unsigned(std::string_view text);

// The candidate a person most likely meant by `word`; empty if none is near.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

// "; did you mean 'util'?" or nothing: the tail of an error message.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates);

// Which of `words` it is, by its position; else "'x': ids or uuids would be right".
Result<std::size_t> one_of(std::string_view text, std::span<const std::string_view> words);

// The members of lists with commas, blanks around them removed.
std::vector<std::string> comma_list(std::span<const std::string> lists);

// How many bytes the UTF-8 character at the start of a text has that is not empty; 0 if there is none.
std::size_t utf8_length(std::string_view text);

// The text with control characters, marks that turn its direction and broken UTF-8
// made harmless, so that a hostile process name can neither move the cursor of the
// person who looks at it nor make it read otherwise than it is.
std::string printable(std::string_view text);
// The same for a text of several lines, which stay lines.
std::string printable_lines(std::string_view text);

// Text from outside for HTML and SVG: printable_lines() in which a reader of markup can take nothing for its own, in
// text and in attributes with quotes.
std::string for_markup(std::string_view text);

// A command as one text, cut into words as a shell would: blanks part them, 'single' and "double" quotes and the
// backslash keep them together. Nothing is expanded: a $ or * stays what it is.
Result<std::vector<std::string>> shell_words(std::string_view text);
// The words as a shell reads them back.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace lull
