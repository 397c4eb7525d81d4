# Starts an interactive shell on a separate terminal, types into it, presses Tab, and prints the completed line.
# Usage: zsh -f type.zsh SETUP TYPED EXPECTED SHELL [FLAG...]
zmodload zsh/zpty || exit 2
setup=$1 typed=$2 expected=$3
shift 3
zpty shell "${(@q)@}" || exit 2
# The echo of the typed line contains quotes, so that only the output of `echo` matches.
zpty -w shell "$setup; echo READ''Y"
zpty -r shell output '*READY*' || { print -r -- "no prompt: $output"; exit 1 }
# Ctrl-A moves the cursor to the beginning of the line, where `echo` is inserted, so that the shell prints the line.
zpty -w -n shell "$typed"$'\t\C-aecho FOUND: \r'
zpty -r shell output "*FOUND: $expected*" || { print -r -- "not completed: $output"; exit 1 }
print -r -- "$expected"
zpty -d shell
