# bash completion for lull. Options come from each command's own help, so that they are never out of date.

_lull_words() { "$lull" __complete "$1" 2>/dev/null | cut -f1; }
_lull_options() { "$lull" "$1" --help 2>/dev/null | grep -oE '^  +(-[a-zA-Z],)?--[a-z][a-z-]*' | grep -oE -e '--?[a-zA-Z][a-z-]*'; }
_lull_offer() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }

_lull() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} lull=${COMP_WORDS[0]} command='' i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then # behind it stands another command
      if declare -F _command_offset >/dev/null; then _command_offset $((i + 1)); else mapfile -t COMPREPLY < <(compgen -c -f -- "$cur"); fi
      return
    fi
    [[ -z $command && ${COMP_WORDS[i]} != -* ]] && command=${COMP_WORDS[i]}
  done
  case $prev in
    --gpus | --gpu) _lull_offer "$(_lull_words gpus) all" ;;
    release) _lull_offer "$(_lull_words leases) all" ;;
    --idle | --arm | --free | --warn-by | check) _lull_offer "$(_lull_words rules; _lull_words signals)" ;;
    --also) _lull_offer "$(_lull_words jobs)" ;;
    keep) _lull_offer "$(_lull_words jobs; _lull_words gpus)" ;;
    --do) _lull_offer "$(_lull_words actions)" ;;
    help) _lull_offer "$(_lull_words commands)" ;;
    sim) if [[ $cur == -* ]]; then _lull_offer "$(_lull_options sim)"; else _lull_offer "$("$lull" sim --help 2>/dev/null | sed -nE 's/^  lull sim ([a-z]+) .*/\1/p')"; fi ;;
    *)
      if [[ -z $command ]]; then
        _lull_offer "$(_lull_words commands) help --help --version"
      elif [[ $cur == -* ]]; then
        _lull_offer "$(_lull_options "$command")"
      else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      fi
      ;;
  esac
}
complete -o filenames -o bashdefault -F _lull lull
