//go:build unix

package kine

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/kine/postgres"
)

// password has what needs percent-encoding.
const password = "s3cr3t/p@ss:w#rd?&%"

func postgresEngine() engine {
	return engine{
		start: func(t *testing.T) string {
			return "postgres://sailplane:" + escaped(password) + "@/contract_%d?host=" + escaped(startPostgres(t))
		},
		password: password,
		storage: func(url string, timeout time.Duration) controlplane.Storage {
			return postgres.DB{URL: url, DialTimeout: timeout}
		},
		lacks: lacksOfSQL(nil),
	}
}

// escaped is text for a URL that fmt formats.
func escaped(text string) string {
	return string(bytes.ReplaceAll([]byte(url.QueryEscape(text)), []byte("%"), []byte("%%")))
}

// startPostgres runs a PostgreSQL that is of this test alone, on a Unix socket in
// the directory it returns. PostgreSQL refuses to run as root, so root runs it as
// the user that Debian's package made.
func startPostgres(t *testing.T) string {
	t.Helper()
	initdb, err := exec.LookPath("initdb")
	if err != nil {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
		if len(found) == 0 {
			lacking(t, "PostgreSQL is not installed: the Debian package is postgresql")
		}
		initdb = found[len(found)-1]
	}
	dir := ownDir(t)
	become := account(t, "postgres", dir)
	secret := filepath.Join(dir, "password")
	if err := os.WriteFile(secret, []byte(password), 0o644); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	create := exec.CommandContext(t.Context(), initdb, "--pgdata", data, "--username=sailplane", "--pwfile", secret,
		"--auth=scram-sha-256", "--no-locale", "--encoding=UTF8", "--no-sync")
	create.SysProcAttr, create.Dir = become, dir
	if output, err := create.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, output)
	}
	server := exec.Command(filepath.Join(filepath.Dir(initdb), "postgres"), "-D", data, "-k", dir,
		"-c", "listen_addresses=", "-c", "max_connections=300", "-c", "fsync=off")
	server.SysProcAttr, server.Dir = become, dir
	background(t, server, syscall.SIGINT) // what ends connections and then the server
	return dir
}

// ownDir is a directory that another user may be given, which is not so of
// those of the testing package.
func ownDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sailplane-kine")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// account gives a directory to a user and says how to run a program as that one,
// where the tests run as root.
func account(t *testing.T, name, dir string) *syscall.SysProcAttr {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// background runs a server until the test ends, when a signal tells it to.
func background(t *testing.T, server *exec.Cmd, end syscall.Signal) {
	t.Helper()
	var output bytes.Buffer
	server.Stdout, server.Stderr = &output, &output
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Process.Signal(end); err != nil {
			t.Error(fmt.Errorf("%s: %w\n%s", server.Path, err, output.String()))
		}
		_ = server.Wait() // it says how it was ended
		if t.Failed() {
			t.Logf("%s said:\n%s", server.Path, output.String())
		}
	})
}
