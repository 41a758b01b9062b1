package envtest

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
)

// quiet leaves the process's logger as it is.
func quiet(ctx context.Context, _ io.Writer, _ config.Log) context.Context { return ctx }

func TestNamed(t *testing.T) {
	for name, tc := range map[string]struct{ reason, arg0, want string }{
		"Path":      {"a suite starts it with its path", "/assets/kube-apiserver", "kube-apiserver"},
		"Etcd":      {"the same program under the other name", "/assets/etcd", "etcd"},
		"Windows":   {"programs have an extension there", "etcd.exe", "etcd"},
		"Itself":    {"under its own name it is itself", "/usr/bin/sailplane", ""},
		"Similar":   {"a name that only begins so is none", "etcdctl", ""},
		"Somewhere": {"folders do not count", "/etcd/sailplane", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if c := Named(tc.arg0, quiet); c != nil {
				got = c.Name()
			}
			if got != tc.want {
				t.Errorf("%s: it is %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestSplit(t *testing.T) {
	isKnown := func(name string) bool { return name == "known" || name == "long-name" }
	for name, tc := range map[string]struct {
		reason         string
		args           []string
		known, unknown []string
	}{
		"Known":      {"it stays as it is", []string{"--known=a", "--known", "b"}, []string{"--known=a", "--known", "b"}, nil},
		"Unknown":    {"it goes with its value", []string{"--other=a", "--known=b"}, []string{"--known=b"}, []string{"other"}},
		"Apart":      {"so it does when the value is an argument", []string{"--other", "a", "--known=b"}, []string{"--known=b"}, []string{"other"}},
		"NoValue":    {"the next flag is no value", []string{"--other", "--known=b"}, []string{"--known=b"}, []string{"other"}},
		"Twice":      {"one warning is enough", []string{"--other=a", "--other=b"}, nil, []string{"other"}},
		"Underscore": {"is a hyphen in Kubernetes", []string{"--long_name=a_b"}, []string{"--long-name=a_b"}, nil},
		"Short":      {"short ones are left to the parser", []string{"-v", "2"}, []string{"-v", "2"}, nil},
		"Last":       {"nothing comes after it", []string{"--other"}, nil, []string{"other"}},
	} {
		t.Run(name, func(t *testing.T) {
			known, unknown := split(tc.args, isKnown)
			if diff := cmp.Diff([2][]string{tc.known, tc.unknown}, [2][]string{known, unknown}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestHelp has what envtest looks for, and has not.
func TestHelp(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, program, flag string
		want                  bool
	}{
		"NoInsecurePort": {"envtest would set it", apiServerName, "insecure-port", false},
		"NoFsync":        {"envtest sets it where it is", etcdName, "unsafe-no-fsync", true},
	} {
		t.Run(name, func(t *testing.T) {
			var out, log bytes.Buffer
			c := Named(tc.program, quiet)
			c.SetArgs([]string{"--help"})
			c.SetOut(&out)
			c.SetErr(&log)
			if err := c.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			// As of https://github.com/kubernetes-sigs/controller-runtime/blob/v0.24.1/pkg/internal/testing/process/process.go#L140
			if got := regexp.MustCompile(`(?m)^\s*--` + tc.flag + `\b`).MatchString(out.String()); got != tc.want || log.Len() > 0 {
				t.Errorf("%s: the help has the flag: %v, want %v\n%s%s", tc.reason, got, tc.want, &out, &log)
			}
		})
	}
}

func TestMistakes(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, program string
		args            []string
		want            string
	}{
		"Value":    {"a value that cannot be", apiServerName, []string{"--secure-port=many"}, "--secure-port"},
		"Argument": {"there are none", apiServerName, []string{"run"}, `unknown command "run"`},
		"NoEtcd":   {"objects have to be somewhere", apiServerName, []string{"--secure-port=0"}, "--etcd-servers is empty"},
		"Listen":   {"a URL nobody can listen at", etcdName, []string{"--data-dir=" + t.TempDir(), "--listen-client-urls=here"}, "want http://HOST:PORT"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			c := Named(tc.program, quiet)
			c.SetArgs(tc.args)
			c.SetErr(&log)
			if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want an error with %q", tc.reason, err, tc.want)
			}
		})
	}
}
