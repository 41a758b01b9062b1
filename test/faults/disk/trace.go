package disk

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// calls are the system calls that a trace needs: those that change files, and
// those that move in them. What a program reads is not in it, only how much.
const calls = "open,openat,creat,close,dup,dup2,dup3,fcntl,read,pread64,lseek,write,pwrite64,writev,pwritev,pwritev2,sendfile,copy_file_range," +
	"ftruncate,truncate,fallocate,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir," +
	"fsync,fdatasync,sync,syncfs,sync_file_range,msync,mmap"

// Available says why a process cannot be traced here, or nil.
func Available() error {
	path, err := exec.LookPath("strace")
	if err != nil {
		return fmt.Errorf("strace is missing (Debian: apt-get install strace): %w", err)
	}
	if out, err := exec.Command(path, "-f", "--seccomp-bpf", "-e", "trace=fsync", "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		return fmt.Errorf("strace cannot trace here: %w: %s", err, out)
	}
	return nil
}

// Traced returns a command that runs cmd and writes its trace to a file.
func Traced(cmd *exec.Cmd, trace string) *exec.Cmd {
	args := []string{
		"-f", "--seccomp-bpf", "-qq", "-xx", "-s", "268435456",
		"-e", "trace=" + calls, "-e", "raw=read,pread64", "-e", "signal=none", "-o", trace, "--",
	}
	traced := exec.Command("strace", append(args, cmd.Args...)...)
	traced.Dir, traced.Env, traced.Stdin, traced.Stdout, traced.Stderr = cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr
	return traced
}

// call is one system call of a trace.
type call struct {
	name   string
	args   []string
	result int64
	failed bool // or unknown, as of a process that was killed in it
	killed bool // the process was killed in it, and it may have happened
	number int  // how many changes were done when it began
}

// int returns an argument that is a number.
func (c *call) int(i int) int64 {
	n, err := strconv.ParseInt(c.args[i], 0, 64)
	if err != nil {
		return -1
	}
	return n
}

// text returns an argument that is a string.
func (c *call) text(i int) ([]byte, error) {
	quoted, found := strings.CutPrefix(c.args[i], `"`)
	quoted, closed := strings.CutSuffix(quoted, `"`)
	if !found || !closed {
		return nil, fmt.Errorf("%s: argument %d is no whole string: %.40s", c.name, i, c.args[i])
	}
	return hex.DecodeString(strings.ReplaceAll(quoted, `\x`, ""))
}

// TraceError says that a trace cannot be understood. Where a thread is killed, strace
// now and then writes the end of one call with the begin of another.
type TraceError struct{ cause error }

func (e *TraceError) Error() string { return e.cause.Error() }

// Unwrap returns what is wrong with the trace.
func (e *TraceError) Unwrap() error { return e.cause }

// Replay does to the disk what a trace says was done to the directory.
func (d *Disk) Replay(trace string) error {
	f, err := os.Open(trace)
	if err != nil {
		return err
	}
	defer f.Close()
	r := &replay{disk: d, begun: map[string]*call{}, parts: map[string]string{}, open: map[int64]*handle{}}
	lines := bufio.NewReaderSize(f, 1<<20)
	for n := 1; ; n++ {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // the last line may be cut off
		}
		if err := r.line(strings.TrimSuffix(line, "\n")); err != nil {
			return &TraceError{fmt.Errorf("%s: line %d: %w", filepath.Base(trace), n, err)}
		}
	}
	return r.cutOff()
}

// replay is the state of a process as its trace goes on. All threads share it.
type replay struct {
	disk  *Disk
	begun map[string]*call  // by thread
	parts map[string]string // the begin of a call's line, by thread
	open  map[int64]*handle
}

// line reads a line: a whole call, the begin of one or its end.
func (r *replay) line(line string) error {
	thread, rest, found := strings.Cut(line, " ")
	rest = strings.TrimLeft(rest, " ")
	switch {
	case !found || strings.HasPrefix(rest, "+++") || strings.HasPrefix(rest, "---"):
		return nil
	case strings.HasPrefix(rest, "<... "):
		return r.resumed(thread, rest)
	}
	begin, unfinished := strings.CutSuffix(rest, "<unfinished ...>")
	if !unfinished { // it was killed in the call
		begin, unfinished = strings.CutSuffix(rest, "<detached ...>")
	}
	if unfinished {
		c, err := parse(strings.TrimRight(begin, " ,") + ") = ?")
		if err != nil {
			return err
		}
		c.number = r.disk.count
		r.parts[thread], r.begun[thread] = begin, c
		return r.enter(c)
	}
	c, err := parse(rest)
	if err != nil {
		return err
	}
	c.number = r.disk.count
	if err := r.enter(c); err != nil {
		return err
	}
	return r.leave(c)
}

// resumed ends a call whose begin was another line.
func (r *replay) resumed(thread, rest string) error {
	begun := r.begun[thread]
	_, end, found := strings.Cut(rest, " resumed>")
	if begun == nil || !found {
		return fmt.Errorf("a call ends that did not begin: %.80s", rest)
	}
	delete(r.begun, thread)
	c, err := parse(r.parts[thread] + strings.TrimLeft(end, " "))
	if err != nil {
		return err
	}
	c.number = begun.number
	return r.leave(c)
}

// cutOff does what calls had begun to do when the process ended: it may have happened.
func (r *replay) cutOff() error {
	for _, c := range r.begun {
		if c.name == "write" || c.name == "pwrite64" {
			data, err := c.text(1)
			if err != nil {
				return err
			}
			c.result, c.failed, c.killed = int64(len(data)), false, true
			if err := r.leave(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// parse reads "name(arguments) = result".
func parse(line string) (*call, error) {
	name, rest, found := strings.Cut(line, "(")
	at := strings.LastIndex(rest, " = ")
	if !found || at < 0 {
		return nil, fmt.Errorf("no call: %.80s", line)
	}
	c := &call{name: name}
	inside := strings.TrimSuffix(strings.TrimRight(rest[:at], " "), ")")
	if inside != "" {
		c.args = strings.Split(inside, ",") // strings are hexadecimal: no comma is in one
		for i := range c.args {
			c.args[i] = strings.TrimSpace(c.args[i])
		}
	}
	result, _, _ := strings.Cut(rest[at+len(" = "):], " ")
	n, err := strconv.ParseInt(result, 0, 64)
	c.result, c.failed = n, err != nil || n < 0
	return c, nil //nolint:nilerr // a result that is no number is that of a call that did not return
}
