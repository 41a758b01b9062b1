package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sailplane-dev/sailplane/test/script"
)

// patience is how long a script waits for what a program does by itself, on a busy machine.
const patience = 3 * time.Minute

// shown is how much of an output a failure has: a screen is less.
const shown = 10_000

// commands are those of scripts, besides the ones of test/script:
//
//	port NAME...                     sets variables to ports of 127.0.0.1 that nobody listens on
//	start NAME [VAR=VALUE...] CMD... starts a program, which must run until it is stopped
//	halt NAME                        stops a program, as the end of the script does
//	logged NAME REGEXP               waits until the program's log matches; with "!" it must not match now
//	await REGEXP CMD...              repeats a command until it succeeds and its output matches, or with "!" does not
//	files DIR NAME                   serves a folder over HTTP, and sets a variable to its URL
//	mount NAMESPACE/SECRET DIR       waits for a Secret and writes its files, as a kubelet does for a pod
//	account NAMESPACE/NAME FILE      writes a kubeconfig with a token of a ServiceAccount
//	network VAR HOST:PORT=ADDRESS... sets a variable to a proxy by which programs find Services
//	terminal [VAR=VALUE...] CMD...   starts a program in a terminal of 40 lines of 160 columns; its name is the command's
//	type KEYS...                     sends keys to it; <Enter>, <Escape>, <Tab>, <Backspace>, <Space>, <Up>, <Ctrl-D> and the like
//	                                 are keys. A program that reads keys after <Escape> at once may take them for one key with Alt
//	screen REGEXP                    waits until its screen matches, or with "!" does not
//
// $LOGS is the folder of the programs' logs. Besides kubectl there is a program "get URL", which prints what a server answers.
func commands() map[string]func(ts *testscript.TestScript, neg bool, args []string) {
	all := script.Commands()
	maps.Copy(all, map[string]func(*testscript.TestScript, bool, []string){
		"port": port, "start": start, "halt": halt, "logged": logged, "await": await, "mount": mount,
		"files": files, "account": account, "network": network, "terminal": openTerminal, "type": typeKeys, "screen": screen,
	})
	return all
}

func port(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: port NAME...")
	}
	listeners := make([]net.Listener, len(args)) // all at once, to get different ports
	for i, name := range args {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		ts.Check(err)
		_, number, err := net.SplitHostPort(l.Addr().String())
		ts.Check(err)
		ts.Setenv(name, number)
		listeners[i] = l
	}
	for _, l := range listeners {
		ts.Check(l.Close())
	}
}

func start(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: start NAME [VAR=VALUE...] COMMAND...")
	}
	name := args[0]
	env, args := variables(args[1:])
	if len(args) == 0 {
		ts.Fatalf("start %s: there is no command", name)
	}
	begin(ts, name, env, args, launch)
}

// variables are the VAR=VALUE that are before a command.
func variables(args []string) (env, command []string) {
	for len(args) > 0 && strings.Contains(args[0], "=") {
		env, args = append(env, args[0]), args[1:]
	}
	return env, args
}

// begin puts a program on the stage.
func begin(
	ts *testscript.TestScript, name string, env, args []string, launch func(string, *exec.Cmd, *os.File) (*process, error),
) {
	s := on(ts)
	cmd, err := script.Command(ts, args)
	ts.Check(err)
	cmd.Env = append(cmd.Env, env...)
	log, err := os.OpenFile(filepath.Join(s.logs, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	ts.Check(err)
	p, err := launch(name, cmd, log)
	ts.Check(err)
	s.programs = append(s.programs, p)
}

func halt(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: halt NAME")
	}
	s := on(ts)
	ts.Check(s.alive())
	p, err := s.named(args[0])
	ts.Check(err)
	p.stop()
	s.programs = slices.DeleteFunc(s.programs, func(other *process) bool { return other == p })
}

func logged(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: [!] logged NAME REGEXP")
	}
	p, err := on(ts).named(args[0])
	ts.Check(err)
	if !neg {
		until(ts, args[1], true, func() (string, error) { return p.output(), nil })
		return
	}
	pattern, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	if found := pattern.FindAllString(p.output(), 10); found != nil {
		ts.Fatalf("the log of %s has\n%s", args[0], strings.Join(found, "\n"))
	}
}

func await(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: [!] await REGEXP COMMAND...")
	}
	until(ts, args[0], !neg, func() (string, error) {
		cmd, err := script.Command(ts, args[1:])
		ts.Check(err)
		out, err := cmd.CombinedOutput()
		return string(out), err
	})
}

// until waits for an output that matches, or that does not, while all programs run.
func until(ts *testscript.TestScript, pattern string, matches bool, read func() (string, error)) {
	expected, err := regexp.Compile("(?m)" + pattern)
	ts.Check(err)
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		out, err := read()
		if err == nil && expected.MatchString(out) == matches {
			return
		}
		ts.Check(on(ts).alive())
		if time.Since(begun) > patience {
			ts.Fatalf("after %v a match of %s is not %t: %v\n%s", patience, expected, matches, err, out[max(0, len(out)-shown):])
		}
	}
}

func mount(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mount NAMESPACE/SECRET DIR")
	}
	namespace, name, _ := strings.Cut(args[0], "/")
	var secret struct{ Data map[string]string }
	until(ts, "true", true, func() (string, error) {
		cmd, err := script.Command(ts, []string{"kubectl", "get", "secret", "--namespace", namespace, name, "--output", "json"})
		ts.Check(err)
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("secret %s: %w", args[0], err)
		}
		secret.Data = nil
		ts.Check(json.Unmarshal(out, &secret))
		return fmt.Sprint(len(secret.Data) > 0), nil
	})
	dir := ts.MkAbs(args[1])
	ts.Check(os.MkdirAll(dir, 0o700))
	for file, data := range secret.Data {
		text, err := base64.StdEncoding.DecodeString(data)
		ts.Check(err)
		ts.Check(os.WriteFile(filepath.Join(dir, file), text, 0o600))
	}
}
