package auditing_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/auditing"
)

// chained runs a server with a chain for some events, and returns its files, the
// oldest first.
func chained(t *testing.T, dir string, events int) []string {
	t.Helper()
	path := filepath.Join(dir, "audit.log")
	client, stop := serve(t, "ada", auditing.Log{Path: path, MaxSize: 3000, Chain: true})
	for i := range events {
		_ = client.CoreV1().ConfigMaps("default").Delete(t.Context(), fmt.Sprint("absent-", i), metav1.DeleteOptions{})
	}
	stop()
	files, err := filepath.Glob(filepath.Join(dir, "audit-*.log"))
	if err != nil {
		t.Fatal(err)
	}
	return append(files, path)
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestChain has servers write one log after another, of which the second was killed
// while it wrote.
func TestChain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := chained(t, dir, 10)
	if len(files) < 3 {
		t.Fatalf("got files %v: want some that were renamed", files)
	}
	first, err := auditing.Verify(files)
	if err != nil || first.Events < 10 || first.First != 1 || first.Last != uint64(first.Events) || first.From.After(first.To) {
		t.Fatalf("got %+v, %v", first, err)
	}
	second, err := auditing.Verify(chained(t, dir, 3), first.Head)
	if err != nil || second.Events < first.Events+3 || second.Mended != 0 {
		t.Fatalf("after a restart: got %+v, %v: want the chain to go on", second, err)
	}
	current := filepath.Join(dir, "audit.log")
	content := read(t, current)
	write(t, current, append(content, `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Meta`...))
	if _, err := auditing.Verify(files); !errors.Is(err, auditing.ErrBroken) {
		t.Errorf("a line without an end: got error %v", err)
	}
	third, err := auditing.Verify(chained(t, dir, 3), first.Head, second.Head)
	if err != nil || third.Events < second.Events+4 || third.Mended != 1 {
		t.Fatalf("after a crash: got %+v, %v: want a chain that was mended", third, err)
	}
}

// TestChainBegins: a log that was without a chain gets one.
func TestChainBegins(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const old = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","verb":"create"}` + "\n"
	write(t, filepath.Join(dir, "audit.log"), []byte(strings.TrimSuffix(old+old, "\n")))
	files := chained(t, dir, 1)
	v, err := auditing.Verify(files)
	if err != nil || v.Unchained != 2 || v.First != 1 {
		t.Errorf("got %+v, %v", v, err)
	}
	write(t, files[0], bytes.Replace(read(t, files[0]), []byte("\n"+old), []byte("\n"+strings.Replace(old, "create", "delete", 1)), 1))
	if _, err := auditing.Verify(files); !errors.Is(err, auditing.ErrBroken) {
		t.Errorf("the last event before the chain was changed: got error %v", err)
	}
}

// TestVerify changes a log in every way that a chain shows.
func TestVerify(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := chained(t, dir, 10)
	whole, err := auditing.Verify(files)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range files {
		lines = append(lines, strings.Split(strings.TrimSuffix(string(read(t, f)), "\n"), "\n")...)
	}
	n := len(lines)
	edit := func(change func(l []string) []string) []string { return change(slices.Clone(lines)) }
	cases := map[string]struct {
		reason string
		lines  []string
		heads  []string
		want   string // of the error; empty: it is intact
	}{
		"whole":             {"in one file as in several", lines, []string{whole.Head}, ""},
		"cut":               {"a line is missing", edit(func(l []string) []string { return slices.Delete(l, 4, 5) }), nil, "line 5: it is number 6, after 4"},
		"changed":           {"a line is another", edit(func(l []string) []string { l[4] = strings.Replace(l[4], "delete", "create", 1); return l }), nil, "line 6: the line before was changed"},
		"added":             {"a line is there twice", edit(func(l []string) []string { return slices.Insert(l, 4, l[4]) }), nil, "line 6: it is number 5, after 5"},
		"without a place":   {"a line is of no chain", edit(func(l []string) []string { return slices.Insert(l, 4, `{"kind":"Event","verb":"get"}`) }), nil, "line 5: it has no place"},
		"no event":          {"a line is nothing", edit(func(l []string) []string { return slices.Insert(l, 4, "audit") }), nil, "line 5: what is here is not what the server wrote"},
		"order":             {"lines changed places", edit(func(l []string) []string { l[4], l[5] = l[5], l[4]; return l }), nil, "line 5: it is number 6, after 4"},
		"begins later":      {"old files are removed: that is no break", lines[4:], nil, ""},
		"ends before":       {"what is missing at the end cannot be seen", lines[:n-1], nil, ""},
		"ends before, head": {"but with what was printed before", lines[:n-1], []string{whole.Head}, "no line has the hash " + whole.Head},
		"nothing":           {"nothing proves nothing", nil, nil, "no line has a place in a chain"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "a.log")
			write(t, path, []byte(strings.Join(append(slices.Clone(tc.lines), ""), "\n")))
			_, err := auditing.Verify([]string{path}, tc.heads...)
			if tc.want == "" && err != nil || tc.want != "" && (!errors.Is(err, auditing.ErrBroken) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: got error %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
	if _, err := auditing.Verify([]string{filepath.Join(dir, "none.log")}); err == nil || errors.Is(err, auditing.ErrBroken) {
		t.Errorf("a file that is not there: got error %v", err)
	}
}
