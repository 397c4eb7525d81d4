# Types into an interactive shell on a terminal of its own, presses Tab, and prints the completed line.
# Usage: zsh -f type.zsh SETUP TYPED EXPECTED SHELL [FLAG...]
zmodload zsh/zpty || exit 2
setup=$1 typed=$2 expected=$3
shift 3
zpty shell "${(@q)@}" || exit 2
# The quotes keep the echo of the typed line from matching.
zpty -w shell "$setup; echo READ''Y"
zpty -r shell output '*READY*' || { print -r -- "no prompt: $output"; exit 1 }
# Ctrl-A: the beginning of the line. Then the line prints itself.
zpty -w -n shell "$typed"$'\t\C-aecho FOUND: \r'
zpty -r shell output "*FOUND: $expected*" || { print -r -- "not completed: $output"; exit 1 }
print -r -- "$expected"
zpty -d shell
