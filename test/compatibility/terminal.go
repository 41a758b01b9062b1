package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
	"github.com/rogpeppe/go-internal/testscript"
)

// The size of a terminal.
const lines, columns = 40, 160

// display is a program's terminal.
type display struct {
	keyboard *os.File
	screen   vt10x.Terminal
}

// show starts a program in a terminal of its own. The log has what it writes there, control sequences too.
func show(name string, cmd *exec.Cmd, log *os.File) (*process, error) {
	file, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: lines, Cols: columns})
	if err != nil {
		return nil, err
	}
	screen := vt10x.New(vt10x.WithSize(columns, lines), vt10x.WithWriter(file))
	p := &process{name: name, cmd: cmd, log: log, ended: make(chan struct{}), display: &display{keyboard: file, screen: screen}}
	go func() {
		defer close(p.ended)
		written := bufio.NewReader(io.TeeReader(file, log))
		for screen.Parse(written) == nil { // fails when the program has ended, which had the terminal
		}
		_ = cmd.Wait() // its state says how it ended
		_ = file.Close()
	}()
	return p, nil
}

// text is what the screen shows, without the space at the ends of lines.
func (d *display) text() string {
	var text strings.Builder
	for line := range strings.Lines(d.screen.String()) {
		text.WriteString(strings.TrimRight(line, " \x00\n") + "\n")
	}
	return text.String()
}

// press sends keys to the program.
func (d *display) press(keys string) error {
	var unknown error
	sent := keyName.ReplaceAllStringFunc(keys, func(key string) string {
		name := key[1 : len(key)-1]
		if letter, is := strings.CutPrefix(name, "Ctrl-"); is && len(letter) == 1 {
			return string(rune(letter[0] & 0x1f))
		}
		if final, is := arrows[name]; is {
			if d.screen.Mode()&vt10x.ModeAppCursor != 0 {
				return "\x1bO" + final
			}
			return "\x1b[" + final
		}
		code, is := named[name]
		if !is {
			unknown = fmt.Errorf("there is no key %s", key)
		}
		return code
	})
	if unknown != nil {
		return unknown
	}
	_, err := d.keyboard.WriteString(sent)
	return err
}

var (
	keyName = regexp.MustCompile(`<[A-Z][A-Za-z]*(-[A-Z])?>`)
	arrows  = map[string]string{"Up": "A", "Down": "B", "Right": "C", "Left": "D"}
	named   = map[string]string{"Enter": "\r", "Escape": "\x1b", "Tab": "\t", "Backspace": "\x7f", "Space": " "}
)

// inTerminal is the program that was last started in a terminal.
func (s *stage) inTerminal() (*process, error) {
	for _, p := range slices.Backward(s.programs) {
		if p.display != nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no program runs in a terminal")
}

func openTerminal(ts *testscript.TestScript, neg bool, args []string) {
	env, args := variables(args)
	if neg || len(args) == 0 {
		ts.Fatalf("usage: terminal [VAR=VALUE...] COMMAND...")
	}
	begin(ts, filepath.Base(args[0]), append([]string{"TERM=xterm-256color", "COLORTERM="}, env...), args, show)
}

func typeKeys(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: type KEYS...")
	}
	s := on(ts)
	p, err := s.inTerminal()
	ts.Check(err)
	ts.Check(s.alive())
	ts.Check(p.display.press(strings.Join(args, "")))
}

func screen(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: [!] screen REGEXP")
	}
	p, err := on(ts).inTerminal()
	ts.Check(err)
	until(ts, args[0], !neg, func() (string, error) { return p.display.text(), nil })
}
