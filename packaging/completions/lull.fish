# fish completion for lull. Options come from each command's own help, so that they are never out of date.

function __lull_options # COMMAND: its options, with what they do
    $argv[1] $argv[2] --help 2>/dev/null | string match -r '^  +(?:-[a-zA-Z],)?--[a-z].*' |
        string replace -r '^  +(?:-[a-zA-Z],)?(--[a-z][a-z_-]*)\S*(?: \S+)?(?:  +(.*))?$' '$1\t$2'
end

function __lull_complete
    set -l words (commandline -opc)
    set -l lull $words[1]
    set -l now (commandline -ct)
    if set -l behind (contains -i -- -- $words) # another command
        complete -C (string join ' ' -- (string escape -- $words[(math $behind + 1)..-1]) $now)
        return
    end
    switch $words[-1]
        case --gpus --gpu
            $lull __complete gpus
        case --idle --arm --free --warn-by
            $lull __complete rules
            $lull __complete signals
        case --also
            $lull __complete jobs
        case --do
            $lull __complete actions
        case '*'
            if test (count $words) -eq 1
                $lull __complete commands
                printf '%s\n' help --help --version
            else if string match -q -- '-*' $now
                __lull_options $lull $words[2]
            else
                switch $words[2]
                    case check
                        $lull __complete rules
                        $lull __complete signals
                    case keep
                        $lull __complete jobs
                        $lull __complete gpus
                    case release
                        $lull __complete leases
                        echo all
                    case help
                        $lull __complete commands
                    case sim
                        if test (count $words) -eq 2
                            $lull sim --help 2>/dev/null | string replace -r -f '^  lull sim (\w+) +(.*)$' '$1\t$2'
                        end
                    case '*'
                        __fish_complete_path $now
                end
            end
    end
end

complete -c lull -f -a '(__lull_complete 2>/dev/null)'
