#include "act/evidence_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "act/picture.h"
#include "base/calendar.h"
#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

constexpr std::size_t kMostShown = std::size_t{4} << 20;  // of all files together; the others are links
constexpr std::size_t kMostWho = 400;                     // letters of a list of processes

constexpr std::string_view kPageHead =
    R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="referrer" content="no-referrer">
)";

constexpr std::string_view kPageStyle =
    R"(<style>
:root { color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1a1f2b; --dim: #667085; --line: #e3e7ee; --mark: #b42318; --code: #f0f2f6; }
@media (prefers-color-scheme: dark) { :root {
  --page: #12151c; --card: #1a1f29; --ink: #e6e9ef; --dim: #94a0b4; --line: #2b3240; --mark: #f78d84; --code: #12151c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 1100px; margin: 0 auto; padding: 24px 28px 60px; }
h1 { font-size: 22px; line-height: 1.3; margin: 0 0 6px; font-weight: 650; overflow-wrap: anywhere; }
h2 { font-size: 15px; margin: 0 0 10px; font-weight: 650; }
h3 { font-size: 13px; margin: 14px 0 4px; font-weight: 650; overflow-wrap: anywhere; }
p { margin: 0 0 8px; overflow-wrap: anywhere; }
a { color: inherit; }
.where { font-size: 16px; }
.differs, .trouble { color: var(--mark); }
.trouble { white-space: pre-line; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px; margin: 16px 0 0; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 4px 16px; margin: 0; }
dt { color: var(--dim); }
dd { margin: 0; overflow-wrap: anywhere; }
pre { font: 12px/1.5 ui-monospace, "Cascadia Code", "DejaVu Sans Mono", monospace; background: var(--code); margin: 0;
  padding: 10px 12px; border-radius: 6px; white-space: pre-wrap; overflow-wrap: anywhere; }
details { border-top: 1px solid var(--line); padding: 6px 0; }
details > pre { margin-top: 6px; }
summary { cursor: pointer; overflow-wrap: anywhere; }
svg { display: block; max-width: 100%; height: auto; }
.narrow { display: none; }
@media (max-width: 700px) { main { padding: 16px 10px 40px; } .card { padding: 12px; } .wide { display: none; }
  .narrow { display: block; } dl { grid-template-columns: minmax(0, 1fr); gap: 0; } dd { margin-bottom: 6px; } }
@media print { details:not([open]) > pre { display: block; } }
</style>
)";

std::string table_row(std::string_view name, std::string_view value) {
  if (value.empty()) return "";
  return fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, for_markup(printable(value)));
}

std::string local_time(WallTime at) { return format_local(at, "%F %H:%M:%S %z"); }

std::string facts_table(const FiringFacts& facts, std::string_view host) {
  std::string job = facts.subject;
  if (facts.job) {
    for (const std::string& word : facts.command) job += (job.empty() ? "" : " ") + word;
    job += fmt::format(" (process {})", *facts.job);
  }
  std::string holders;
  for (const GpuProcess& one : facts.holders)
    if (holders.size() < kMostWho)
      holders += fmt::format("{}{} {} of {}", holders.empty() ? "" : ", ", one.name(), one.pid, one.user());
  std::string table = table_row("Job", job);
  table += table_row("Host", host);
  table += table_row("Users", fmt::format("{}", fmt::join(facts.users, ", ")));
  table += table_row("Held by", holders);
  table += table_row("Rule", facts.why.rule);
  table += table_row("After", facts.why.arm);
  table += table_row("GPUs", fmt::format("{}", fmt::join(facts.why.gpus, ", ")));
  table += table_row("Since", local_time(facts.why.since));
  table +=
      table_row("Held for", fmt::format("{}, {} samples",
                                        format_duration(std::chrono::floor<std::chrono::milliseconds>(facts.why.held)),
                                        facts.why.samples));
  table += table_row("Decided", local_time(facts.at));
  table += table_row("Next", next_of(facts));
  table += table_row("More time", more_time_of(facts));
  return "<section class=\"card\">\n<dl>\n" + table + "</dl>\n</section>\n";
}

std::string preformatted(std::string_view text) {
  // A reader of HTML drops a line break at the beginning.
  return "<pre>\n" + for_markup(text) + "</pre>\n";
}

class FileViews {
 public:
  // As text, folded or not; what is too long for the page is a link.
  std::string show(const EvidenceFile& file, bool open) {
    const std::string name = for_markup(printable(file.name));
    std::string html =
        fmt::format("<details{}><summary><a href=\"{}\">{}</a></summary>\n", open ? " open" : "", name, name);
    const std::size_t most = std::min(kMostFileShown, left_);
    const std::string_view shown = std::string_view(file.text).substr(0, most);
    left_ -= shown.size();
    html += preformatted(shown);
    if (shown.size() < file.text.size()) html += "<p>The rest of it is in the file.</p>\n";
    return html + "</details>\n";
  }

 private:
  std::size_t left_ = kMostShown;
};

std::string stacks_section(const EvidencePage& page, FileViews& files) {
  if (page.python.empty() && page.python_trouble.empty() && page.stacks.empty()) return "";
  std::string html = "<section class=\"card\">\n<h2>Where its processes are</h2>\n";
  if (!page.python_trouble.empty()) html += "<p class=\"trouble\">" + for_markup(page.python_trouble) + "</p>\n";
  std::size_t all = 0;
  for (const PythonGroup& group : page.python) all += group.processes;
  for (const PythonGroup& group : page.python) {
    std::string who = group.who.substr(0, kMostWho);
    if (who.size() < group.who.size()) who += " …";
    html += fmt::format("<h3{}>{} of {} Python processes{}: {}</h3>\n", group.differs ? " class=\"differs\"" : "",
                        group.processes, all,
                        !group.differs         ? ""
                        : group.processes == 1 ? ", which differs from the rest"
                                               : ", which differ from the rest",
                        for_markup(printable(who)));
    html += preformatted(std::string_view(group.stacks).substr(0, kMostFileShown));
    if (group.stacks.size() > kMostFileShown) html += "<p>The rest of it is in python.txt.</p>\n";
  }
  for (const EvidenceFile& file : page.stacks) html += files.show(file, page.stacks.size() == 1);
  return html + "</section>\n";
}

}  // namespace

std::string evidence_page(const EvidencePage& page, const FiringFacts& facts, std::string_view host, const Past& past) {
  const std::string title = for_markup(printable(headline(facts.why)));
  std::string html = std::string(kPageHead) + "<title>lull: " + title + "</title>\n" + std::string(kPageStyle);
  html += "</head>\n<body>\n<main>\n<h1>" + title + "</h1>\n";
  if (!page.where.empty()) html += "<p class=\"where\">" + for_markup(printable(job_is(page.where))) + ".</p>\n";
  if (!page.trouble.empty())
    html += "<p class=\"trouble\">Not complete: " + for_markup(printable_lines(page.trouble)) + "</p>\n";
  html += facts_table(facts, host);
  if (const std::string wide = picture_of(facts, host, past); !wide.empty())
    html += "<section class=\"card\">\n<h2>Readings</h2>\n<div class=\"wide\">\n" + wide +
            "</div>\n<div class=\"narrow\">\n" + picture_of(facts, host, past, kNarrowPicture) + "</div>\n</section>\n";
  FileViews files;
  html += stacks_section(page, files);
  html += "<section class=\"card\">\n<h2>Files</h2>\n";
  for (const EvidenceFile& file : page.files)
    html += files.show(file, file.name == "tree.txt" || file.name == "kernel.txt");
  return html + "</section>\n</main>\n</body>\n</html>\n";
}

}  // namespace lull
