# bash completion for lull. Options and their values come from lull itself, so that they are never out of date.

_lull_words() { "$lull" __complete "$@" 2>/dev/null | cut -f1; }
_lull_offer() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }
_lull_files() {
  compopt -o filenames 2>/dev/null # only here: a command is no folder of the same name
  mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}

_lull() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} lull=${COMP_WORDS[0]} values i
  local -a command=()
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then # behind it stands another command
      if declare -F _command_offset >/dev/null; then
        _command_offset $((i + 1))
      else
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -c -f -- "$cur")
      fi
      return
    fi
    [[ ${#command[@]} == 0 && ${COMP_WORDS[i]} != -* ]] && command=("${COMP_WORDS[i]}")
    [[ $i == 2 && ${command[0]} =~ ^(sim|slurm)$ && ${COMP_WORDS[2]} != -* ]] && command+=("${COMP_WORDS[2]}")
  done
  if [[ $cur == = ]]; then # --option=VALUE is three words
    cur=''
  elif [[ $prev == = ]]; then
    prev=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  if [[ ${#command[@]} == 0 ]]; then
    _lull_offer "$(_lull_words commands) help --help --version"
  elif [[ $cur == -* ]]; then
    _lull_offer "$(_lull_words options "${command[@]}")"
  elif [[ $prev == -* ]] && _lull_takes_value; then
    values=$("$lull" __complete value "$prev" "${command[@]}" 2>/dev/null) || { _lull_files; return; }
    _lull_offer "$(cut -f1 <<<"$values")"
  else
    case ${command[0]} in
      release) _lull_offer "$(_lull_words leases) all" ;;
      check) _lull_offer "$(_lull_words rules; _lull_words signals)" ;;
      keep) _lull_offer "$(_lull_words jobs; _lull_words gpus)" ;;
      park) _lull_offer "$(_lull_words jobs)" ;;
      unpark) _lull_offer "$("$lull" park 2>/dev/null | cut -d " " -f1)" ;;
      help) _lull_offer "$(_lull_words commands)" ;;
      sim | slurm) [[ ${#command[@]} == 1 ]] && _lull_offer "$("$lull" "${command[0]}" --help 2>/dev/null | sed -nE "s/^  lull ${command[0]} ([a-z]+) .*/\1/p")" ;;
      *) _lull_files ;;
    esac
  fi
}
_lull_takes_value() { _lull_words valued "${command[@]}" | grep -qxFe "$prev"; }
complete -F _lull lull
