# fish completion for lull. Options and their values come from lull itself, so that they are never out of date.

function __lull_value # OPTION: what may stand behind it; its files, where it names one
    set -l values ($lull __complete value $argv[1] $command 2>/dev/null)
    or begin
        __fish_complete_path (string replace -r '^--[^=]*=' '' -- $now)
        return
    end
    printf '%s\n' $values
end

function __lull_complete
    set -l words (commandline -opc)
    set -lx lull $words[1]
    set -lx now (commandline -ct)
    if set -l behind (contains -i -- -- $words) # another command
        complete -C (string join ' ' -- (string escape -- $words[(math $behind + 1)..-1]) $now)
        return
    end
    set -lx command $words[2]
    if contains -- "$command" sim slurm; and test (count $words) -ge 3; and not string match -q -- '-*' $words[3]
        set -a command $words[3]
    end
    if test (count $words) -eq 1
        $lull __complete commands
        printf '%s\n' help --help --version
    else if set -l option (string match -r -- '^(--[^=]+)=' $now)
        __lull_value $option[2] | string replace -r '^' -- "$option[1]"
    else if string match -q -- '-*' $now
        $lull __complete options $command
    else if contains -- $words[-1] ($lull __complete valued $command 2>/dev/null | string replace -r '\t.*' '')
        __lull_value $words[-1]
    else
        switch $command[1]
            case check
                $lull __complete rules
                $lull __complete signals
            case keep
                $lull __complete jobs
                $lull __complete gpus
            case park
                $lull __complete jobs
            case unpark
                $lull park 2>/dev/null | string replace -r ' .*' ''
            case release
                $lull __complete leases
                echo all
            case help
                $lull __complete commands
            case sim slurm
                if test (count $words) -eq 2
                    $lull $command[1] --help 2>/dev/null | string replace -r -f '^  lull \w+ (\w+) +(.*)$' '$1\t$2'
                end
            case '*'
                __fish_complete_path $now
        end
    end
end

complete -c lull -f -a '(__lull_complete 2>/dev/null)'
