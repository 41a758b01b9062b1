//go:build unix

package kine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/kine/mysql"
)

func mysqlEngine() engine {
	return engine{
		start: func(t *testing.T) string {
			return "mysql://sailplane:" + escaped(password) + "@localhost/contract_%d?socket=" + escaped(startMariaDB(t))
		},
		password: password,
		storage: func(url string, timeout time.Duration) controlplane.Storage {
			return mysql.DB{URL: url, DialTimeout: timeout}
		},
		lacks: lacksOfSQL(map[string]lack{
			"keys/hold every byte":                     never("keys are ASCII, and keys that differ only in case are the same"),
			"keys/have bytewise order":                 never("keys are ASCII, and keys that differ only in case are the same"),
			"keys/of a prefix end at its last one":     never("keys are ASCII, and keys that differ only in case are the same"),
			"lifecycle/starts and stops leave nothing": never("every start leaves a connection and its goroutine until the process ends"),
		}),
	}
}

// startMariaDB runs a MariaDB that is of this test alone and returns the path of
// its Unix socket.
func startMariaDB(t *testing.T) string {
	t.Helper()
	install, err := exec.LookPath("mariadb-install-db")
	if err != nil {
		lacking(t, "MariaDB is not installed: the Debian package is mariadb-server")
	}
	dir := ownDir(t)
	become := account(t, "mysql", dir)
	data, socket := filepath.Join(dir, "data"), filepath.Join(dir, "socket")
	create := exec.CommandContext(t.Context(), install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal")
	create.SysProcAttr, create.Dir = become, dir
	if output, err := create.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", install, err, output)
	}
	users := filepath.Join(dir, "users.sql")
	statements := fmt.Sprintf("CREATE USER sailplane@localhost IDENTIFIED BY '%s';\nGRANT ALL ON *.* TO sailplane@localhost;\n", password)
	if err := os.WriteFile(users, []byte(statements), 0o644); err != nil {
		t.Fatal(err)
	}
	server := exec.Command("/usr/sbin/mariadbd", "--no-defaults", "--datadir="+data, "--socket="+socket,
		"--skip-networking", "--init-file="+users, "--max-connections=300", "--innodb-flush-log-at-trx-commit=2", "--pid-file="+filepath.Join(dir, "pid"))
	server.SysProcAttr, server.Dir = become, dir
	background(t, server, syscall.SIGTERM)
	return socket
}
