// Command machines keeps its objects in a table that other programs read and write: rows of a
// SQLite database.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	_ "modernc.org/sqlite" // the driver

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/keep/sqltable"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:6443", "address to serve HTTPS at")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	db, err := sql.Open("sqlite", "file:machines.db?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
	if err == nil {
		_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS lines (machine TEXT, line TEXT)`)
	}
	if err == nil {
		err = controlplane.New("machines").
			Listen(*listen).
			Storage(memory.Store{}). // for everything else: here there is nothing
			With(
				authn.Admin{Kubeconfig: "admin.kubeconfig"},
				apis.NewGroup(schema.GroupVersion{Group: "fleet.example.com", Version: "v1"}, nil, nil, machines(db)),
			).
			Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "machines:", err)
		os.Exit(1)
	}
}

// machines are the rows of the table of this name.
func machines(db *sql.DB) *apis.Definition {
	return apis.Resource[Machine, MachineList]("machines",
		apis.ClusterScoped(),
		apis.Status(),
		apis.Kept(&sqltable.Table[Machine]{DB: db, Name: "machines", Columns: []sqltable.Column{
			{Name: "rack", Path: "spec.rack"}, {Name: "restarts", Path: "status.restarts"},
		}}),
		apis.Stream("log", console{db}.log),
		apis.Do("restart", console{db}.restart),
		apis.Columns(
			func(m *Machine) []any { return []any{m.Spec.Rack, m.Status.Restarts} },
			metav1.TableColumnDefinition{Name: "Rack", Type: "string"},
			metav1.TableColumnDefinition{Name: "Restarts", Type: "integer"},
		))
}

// console is where machines are restarted, and where they write lines.
type console struct{ db *sql.DB }

// log is what a machine wrote.
func (c console) log(ctx context.Context, m *Machine, o *corev1.PodLogOptions) (io.ReadCloser, error) {
	var text string
	err := c.db.QueryRowContext(ctx, `SELECT COALESCE(group_concat(line || char(10), ''), '') FROM
		(SELECT * FROM (SELECT rowid, line FROM lines WHERE machine = ? ORDER BY rowid DESC LIMIT ?) ORDER BY rowid)`,
		m.Name, ptr.Deref(o.TailLines, -1)).Scan(&text)
	return io.NopCloser(strings.NewReader(text)), err
}

// restart writes the table as any program may, and watchers see it. The answer is Success, or the error.
func (c console) restart(ctx context.Context, m *Machine, in *Restart) (*metav1.Status, error) {
	if in.Reason == "" {
		return nil, apierrors.NewBadRequest("give a reason")
	}
	_, err := c.db.ExecContext(ctx, `UPDATE machines SET restarts = COALESCE(restarts, 0) + 1 WHERE name = ?1;
		INSERT INTO lines VALUES (?1, 'restart: ' || ?2)`, m.Name, in.Reason)
	return nil, err
}
