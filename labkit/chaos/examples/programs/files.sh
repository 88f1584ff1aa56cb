#!/bin/sh
# Three steps with files and nothing else: a step is done when its file has its name.
# The file is made under another name, so that it is never seen half written.
set -e
begin() { echo "$*" >> "$WITNESS.steps"; }

if ! test -e text; then
    begin 0
    cp notes.txt new && mv new text
fi
if ! test -e summary; then
    begin 1
    grep . text | head -n 3 > new && mv new summary
fi
sent=$(($(wc -c < summary) - 1))  # the last line ends with a newline
if ! test -e sent; then
    begin 2
    # The other side takes a key only once.
    grep -q '^t-2 ' "$WITNESS" 2> /dev/null || echo "t-2 $sent" >> "$WITNESS"
    touch sent
fi
begin 3 "$sent"
