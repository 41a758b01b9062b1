package ship

import (
	"bufio"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
)

const unitFile = "config/systemd/sailplane.service"

// settings are the values of each setting of the unit's section Service, in order.
func settings(t *testing.T) map[string][]string {
	t.Helper()
	f, err := os.Open(filepath.Join(repository(t), unitFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	options, err := unit.DeserializeOptions(f)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, o := range options {
		if o.Section == "Service" {
			all[o.Name] = append(all[o.Name], o.Value)
		}
	}
	return all
}

// drain is how long a server that is told to end waits for requests.
const drain = time.Minute

func TestUnit(t *testing.T) {
	t.Parallel()
	all := settings(t)
	for name, tc := range map[string]struct{ want, reason string }{
		"Type":                     {"notify", "started is when it serves"},
		"ExecReload":               {"/bin/kill -HUP $MAINPID", "what is read again is read at this signal"},
		"Restart":                  {"on-failure", "a crash is not the end"},
		"RestartPreventExitStatus": {"2", "wrong flags stay wrong"},
		"DynamicUser":              {"yes", "it needs no user that somebody made before"},
		"StateDirectory":           {"sailplane", "the data survive, and belong to that user"},
		"ProtectSystem":            {"strict", "it writes to its data only"},
		"NoNewPrivileges":          {"yes", "it gets no rights"},
		"CapabilityBoundingSet":    {"", "it has no rights"},
		"PrivateTmp":               {"yes", "it shares no files"},
		"MemoryDenyWriteExecute":   {"yes", "it makes no code"},
	} {
		if got := all[name]; len(got) != 1 || got[0] != tc.want {
			t.Errorf("%s is %q, want %q: %s", name, got, tc.want, tc.reason)
		}
	}
	if n, err := strconv.Atoi(strings.Join(all["TimeoutStopSec"], " ")); err != nil || time.Duration(n)*time.Second <= drain {
		t.Errorf("TimeoutStopSec is %q, want more seconds than requests are waited for (%v)", all["TimeoutStopSec"], drain)
	}
	t.Run("systemd", func(t *testing.T) {
		t.Parallel()
		needsProgram(t, "systemd-analyze")
		verify(t)
	})
}

// verify has systemd read the unit, with the binary where it is here.
func verify(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository(t), unitFile))
	if err != nil {
		t.Fatal(err)
	}
	here := filepath.Join(t.TempDir(), filepath.Base(unitFile))
	if err := os.WriteFile(here, []byte(strings.Replace(string(text), "/usr/local/bin/sailplane", sailplane, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	// It ends with 0 when it ignores what it does not know, and says so.
	if out, err := exec.Command("systemd-analyze", "verify", "--man=no", here).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// Of 10: what is left is the network, Unix sockets and chown.
	out, err := exec.Command("systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold=15", here).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze security finds it exposed: %v\n%s", err, out)
	}
}

// TestUnitAllowsTheServer: what the unit forbids is nothing that a server does.
func TestUnitAllowsTheServer(t *testing.T) {
	t.Parallel()
	needsProgram(t, "systemd-analyze")
	needsProgram(t, "strace")
	all := settings(t)
	allowed := filtered(t, all["SystemCallFilter"])
	families := strings.Fields(strings.Join(all["RestrictAddressFamilies"], " "))
	for name, storage := range map[string]string{"etcd": "etcd:objects", "sqlite": "sqlite:objects.db", "memory": "memory"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			trace := filepath.Join(dir, "trace")
			cmd := exec.Command("strace", "-f", "-qq", "-o", trace, sailplane, "serve", "--listen", "0.0.0.0:0", "--data-dir", "data", "--storage", storage)
			cmd.Dir = dir
			s := start(t, cmd)
			kubeconfig := filepath.Join(dir, "data", "admin.kubeconfig")
			request(t, kubeconfig, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`)
			request(t, kubeconfig, "GET", "/api/v1/configmaps", "")
			request(t, kubeconfig, "GET", "/metrics", "")
			s.stop(traced(t, trace))
			calls, sockets := did(t, trace)
			if len(calls) < 20 {
				t.Fatalf("the trace has %d system calls: is it read right?", len(calls))
			}
			for call := range calls {
				if !allowed[call] {
					t.Errorf("the server calls %s, which SystemCallFilter forbids", call)
				}
			}
			for family := range sockets {
				if !slices.Contains(families, family) {
					t.Errorf("the server has a socket of %s, which RestrictAddressFamilies forbids", family)
				}
			}
		})
	}
}

// traced is the process that strace has started.
func traced(t *testing.T, trace string) int {
	t.Helper()
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.Fields(string(text))[0])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

var (
	systemCall = regexp.MustCompile(`^\d+ +(\w+)\(`)
	socketCall = regexp.MustCompile(`^\d+ +socket\((\w+)`)
)

// did returns the system calls of a trace and the families of its sockets.
func did(t *testing.T, trace string) (calls, sockets map[string]bool) {
	t.Helper()
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	calls, sockets = map[string]bool{}, map[string]bool{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if m := systemCall.FindStringSubmatch(lines.Text()); m != nil {
			calls[m[1]] = true
		}
		if m := socketCall.FindStringSubmatch(lines.Text()); m != nil {
			sockets[m[1]] = true
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return calls, sockets
}

// filtered is the set of system calls that lines of SystemCallFilter allow, the first of
// which allows. See systemd.exec(5).
func filtered(t *testing.T, filters []string) map[string]bool {
	t.Helper()
	sets := map[string][]string{}
	name := ""
	for line := range strings.Lines(output(t, "", "systemd-analyze", "--no-pager", "syscall-filter")) {
		switch word := strings.TrimSpace(line); {
		case word == "" || strings.HasPrefix(word, "#"):
		case !strings.HasPrefix(line, " "):
			name = word
		default:
			sets[name] = append(sets[name], word)
		}
	}
	var members func(of string) map[string]bool
	members = func(of string) map[string]bool {
		if !strings.HasPrefix(of, "@") {
			return map[string]bool{of: true}
		}
		all := map[string]bool{}
		for _, one := range sets[of] {
			maps.Copy(all, members(one))
		}
		if len(all) == 0 {
			t.Fatalf("systemd knows no system calls of %s", of)
		}
		return all
	}
	allowed := members("@default")
	for _, filter := range filters {
		words, denies := strings.CutPrefix(filter, "~")
		for _, word := range strings.Fields(words) {
			for call := range members(word) {
				allowed[call] = !denies
			}
		}
	}
	return allowed
}

// TestPanicIsRestarted: a panic must not look like wrong flags, which are not
// tried again.
func TestPanicIsRestarted(t *testing.T) {
	t.Parallel()
	all := settings(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "main.go")
	if err := os.WriteFile(program, []byte("package main\n\nfunc main() { panic(1) }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	output(t, dir, "go", "build", "-o", "panics", program)
	cmd := exec.Command(filepath.Join(dir, "panics"))
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOTRACEBACK=") })
	cmd.Dir = dir // of a core dump
	cmd.Env = append(cmd.Env, all["Environment"]...)
	if got := ending(cmd.Run()); !strings.HasPrefix(got, "signal: aborted") {
		t.Errorf("a program that panics ends with %s: RestartPreventExitStatus must not include it", got)
	}
}
