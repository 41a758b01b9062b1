// Package upgrade holds docs/upgrading.md to its word: programs of earlier
// versions build and run after what the page says is done to them.
package upgrade

import (
	"bytes"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// row is one row of a table of the page: what was, and what is.
type row struct{ kind, old, new string }

// parse returns the rows of the tables of a page, in its order. The heading above
// a table says what its rows are.
func parse(page string) ([]row, error) {
	var rows []row
	kind := ""
	for i, line := range strings.Split(page, "\n") {
		if heading, found := strings.CutPrefix(line, "## "); found {
			kind = heading
		}
		if kind == "Flags" { // which the program that has them tests
			continue
		}
		cells := strings.Split(line, "|")
		if len(cells) < 4 || strings.TrimSpace(cells[1]) == "old" || strings.HasPrefix(cells[1], "---") {
			continue
		}
		old, oldIsCode := code(cells[1])
		fresh, newIsCode := code(cells[2])
		if !oldIsCode || !newIsCode {
			return nil, fmt.Errorf("line %d: %s: want the old and the new one in backquotes", i+1, line)
		}
		rows = append(rows, row{kind, old, fresh})
	}
	return rows, nil
}

// code is what a cell has between backquotes.
func code(cell string) (string, bool) {
	cell = strings.TrimSpace(cell)
	text := strings.Trim(cell, "`")
	return text, len(text) > 0 && cell == "`"+text+"`"
}

// apply does to files what a row says, and returns those that it changed.
func (r row) apply(files ...string) (changed []string, err error) {
	switch r.kind {
	case "Import paths":
		changed, err = r.move(files)
	case "Names", "Expressions":
		changed, err = gofmt(r.rule(), files)
	default:
		err = fmt.Errorf("no program can be changed by a table below %q", r.kind)
	}
	if err != nil {
		return nil, fmt.Errorf("%s | %s: %w", r.old, r.new, err)
	}
	return changed, nil
}

// move gives files the new import path of a package.
func (r row) move(files []string) (changed []string, err error) {
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		moved := importOnce(bytes.ReplaceAll(source, []byte(`"`+r.old+`"`), []byte(`"`+r.new+`"`)), r.new)
		if bytes.Equal(source, moved) {
			continue
		}
		if moved, err = format.Source(moved); err != nil { // so that gofmt changes what rules say, and no more
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if err := os.WriteFile(file, moved, 0o600); err != nil {
			return nil, err
		}
		changed = append(changed, file)
	}
	return changed, nil
}

// importOnce leaves the first import of a package where two became one.
func importOnce(source []byte, path string) []byte {
	line := []byte("\t\"" + path + "\"\n")
	before, after, found := bytes.Cut(source, line)
	if !found {
		return source
	}
	return slices.Concat(before, line, bytes.ReplaceAll(after, line, nil))
}

// rule is the row as gofmt takes it: a field goes by its name alone.
func (r row) rule() string {
	old, fresh := r.old, r.new
	if r.kind == "Names" && strings.Count(old, ".") == 2 {
		old, fresh = old[strings.LastIndex(old, ".")+1:], fresh[strings.LastIndex(fresh, ".")+1:]
	}
	return old + " -> " + fresh
}

// goroot is where Go is, with gofmt, which is not always on the path.
var goroot = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
})

// gofmt rewrites files by a rule, and returns those that it changed.
func gofmt(rule string, files []string) ([]string, error) {
	name := "gofmt"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	root, err := goroot()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(filepath.Join(root, "bin", name), append([]string{"-l", "-w", "-r", rule}, files...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("gofmt -r %q: %w", rule, err)
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' }), nil
}
