package main

import (
	"strings"
	"testing"
)

// TestTerminal: a program in a terminal has its screen and its keys, and ends with the script.
func TestTerminal(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script string
		// failure is in the words of the script that fails.
		failure string
	}{
		"echo": {script: `
terminal cat
type fruit <Space> juice <Enter>
screen '^fruit juice\nfruit juice$'
`},
		"size and environment": {script: `
terminal FRUIT=pear sh -c 'stty size; echo $FRUIT $TERM; exec cat'
screen '^40 160\npear xterm-256color$'
`},
		"what is cleared is gone": {script: `
terminal sh -c 'echo old; read key; printf "\033[H\033[2Jnew"; exec cat'
screen '^old$'
type <Enter>
! screen old
screen '^new$'
`},
		"keys": {script: `
terminal sh -c 'stty -icanon -echo; printf "ready\n\033[?1h"; exec cat -v'
screen ready
type <Escape>|<Tab>|<Backspace>|<Up>|<Left>|<Ctrl-A>|<not>
screen '^\^\[\| +\|\^\?\|\^\[OA\|\^\[OD\|\^A\|<not>$'
`},
		"end of input": {script: `
terminal sh -c 'cat; echo over; exec sleep 1000'
type <Ctrl-D>
screen over
`},
		"the last one has the keys": {script: `
terminal cat
terminal sh -c 'read key; echo first; exec cat'
type <Enter>
screen first
halt sh
type second <Enter>
screen '^second\nsecond$'
! screen first
`},
		"log": {script: `
terminal sh -c 'echo fruit; exec cat'
screen fruit
grep fruit $LOGS/sh.log
logged sh fruit
`},
		"ended":             {script: "terminal cat\ntype <Ctrl-D>\nscreen never\n", failure: "cat ended by itself"},
		"no such key":       {script: "terminal cat\ntype <Nothing>\n", failure: "there is no key <Nothing>"},
		"no terminal":       {script: "start sleeper sleep 1000\nscreen .\n", failure: "no program runs in a terminal"},
		"a wrong pattern":   {script: "terminal cat\nscreen (\n", failure: "missing closing )"},
		"no such a command": {script: "terminal FRUIT=pear\n", failure: "usage: terminal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := perform(t, test.script)
			switch {
			case test.failure == "" && err != nil:
				t.Error(err)
			case test.failure != "" && (err == nil || !strings.Contains(err.Error(), test.failure)):
				t.Errorf("the script ended with %v, want %q", err, test.failure)
			}
		})
	}
}
