# fish completion for lull. Options come from each command's own help, so that they are never out of date.

function __lull_options
    set -l words (commandline -opc)
    test (count $words) -ge 2; or return
    lull $words[2] --help 2>/dev/null | string match -r -g '^  +(?:-[a-zA-Z],)?(--[a-z][a-z-]*)'
end

function __lull_rules
    lull __complete rules
    lull __complete signals
end

complete -c lull -f -n __fish_use_subcommand -a '(lull __complete commands)'
complete -c lull -n 'not __fish_use_subcommand; and string match -q -- "-*" (commandline -ct)' -f -a '(__lull_options)'
complete -c lull -n 'not __fish_use_subcommand' -x -l gpus -d 'which GPUs' -a '(lull __complete gpus)'
complete -c lull -n 'not __fish_use_subcommand' -x -l idle -d 'the rule that must hold' -a '(__lull_rules)'
complete -c lull -n 'not __fish_use_subcommand' -x -l arm -d 'nothing fires before it has held' -a '(__lull_rules)'
complete -c lull -n 'not __fish_use_subcommand' -x -l also -d 'work outside the job' -a '(lull __complete jobs)'
complete -c lull -f -n '__fish_seen_subcommand_from check' -a '(__lull_rules)'
complete -c lull -f -n '__fish_seen_subcommand_from keep' -a '(lull __complete jobs; lull __complete gpus)'
complete -c lull -f -n '__fish_seen_subcommand_from release' -a '(lull __complete leases)'
