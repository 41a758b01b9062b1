package follow_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sailplane-dev/sailplane/pkg/internal/follow"
)

func TestParse(t *testing.T) {
	t.Parallel()
	text := func(content []byte) (string, error) { return string(content), nil }
	bad := func([]byte) (string, error) { return "", errors.New("bad") }
	file := func(content string, err error) follow.Source {
		return follow.Source{What: "test file", File: "x.yaml", Read: func(string) ([]byte, error) { return []byte(content), err }}
	}
	for name, tc := range map[string]struct {
		reason string
		source follow.Source
		parse  func([]byte) (string, error)
		want   string
		err    string
	}{
		"good":    {"it is what parse makes of it", file("a", nil), text, "a", ""},
		"bad":     {"field and file are named", file("a", nil), bad, "", "field File: x.yaml: bad"},
		"unread":  {"whoever reads names what is read", file("", errors.New("no section")), text, "", "field File: no section"},
		"missing": {"without Read it is a file", follow.Source{File: "absent"}, text, "", "field File: open absent: no such file or directory"},
	} {
		got, err := follow.Parse("field File", tc.source, tc.parse)
		told := ""
		if err != nil {
			told = err.Error()
		}
		if diff := cmp.Diff([]string{tc.want, tc.err}, []string{got, told}); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, tc.reason, diff)
		}
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	var content, used string
	var unreadable error
	bad := map[string]bool{}
	tried := 0
	f := &follow.File{Source: follow.Source{
		What: "test file", File: "x",
		Read: func(string) ([]byte, error) { return []byte(content), unreadable },
		Use: func(_ context.Context, c []byte) error {
			tried++
			if bad[string(c)] {
				return errors.New("bad")
			}
			used = string(c)
			return nil
		},
	}}
	content = "a"
	if err := f.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	begun := time.Unix(1000, 0)
	steps := []struct {
		reason string
		before func()
		after  time.Duration
		want   string
		tried  int
	}{
		{"what did not change is not used again", func() {}, 0, "a", 1},
		{"what changed is", func() { content = "b" }, 0, "b", 2},
		{"what is bad changes nothing", func() { content = "c"; bad["c"] = true }, 0, "b", 3},
		{"and is not tried every time", func() {}, time.Second, "b", 3},
		{"but again after a while", func() {}, follow.Retry, "b", 4},
		{"something else at once", func() { content = "d" }, follow.Retry, "d", 5},
		{"what cannot be read changes nothing", func() { content, unreadable = "e", errors.New("unreadable") }, follow.Retry, "d", 5},
		{"until it can", func() { unreadable = nil }, follow.Retry, "e", 6},
		{"bad again", func() { content = "c" }, 3 * follow.Retry, "e", 7},
		{"what was used before is still in effect", func() { content = "e" }, 3 * follow.Retry, "e", 7},
		{"what was bad and is good now", func() { content, bad["c"] = "c", false }, 3 * follow.Retry, "c", 8},
	}
	for _, s := range steps {
		s.before()
		f.Look(t.Context(), begun.Add(s.after))
		if diff := cmp.Diff([]any{s.want, s.tried}, []any{used, tried}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s.reason, diff)
		}
	}
}
