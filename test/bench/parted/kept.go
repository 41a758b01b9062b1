package main

import (
	"context"
	"database/sql"
	"path/filepath"

	"k8s.io/client-go/rest"
	_ "modernc.org/sqlite" // the driver

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/keep/sqltable"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// keptGroup has things that a table keeps.
const keptGroup = "kept.example.com"

// kept is a server with things that are stored in SQLite, and things that a table of SQLite keeps.
func kept(dir string) (choice, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "things.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
	if err != nil {
		return choice{}, err
	}
	return choice{
		storage: sqlite.File{Path: filepath.Join(dir, "state.db")},
		parts: controlplane.Parts{
			authz.Groups{Admins: []string{group}},
			things(ownGroup),
			apis.NewGroup(versionOf(keptGroup), nil, nil, apis.Resource[fruit.Apple, fruit.AppleList]("things",
				apis.Kept(&sqltable.Table[fruit.Apple]{DB: db, Name: "things"}))),
			controlplane.PartFunc(func(p *controlplane.Plan) error {
				p.Work(controlplane.Work{Name: "close-table", Run: func(ctx context.Context, _ *controlplane.Plane) error {
					<-ctx.Done()
					return db.Close()
				}})
				return nil
			}),
		},
		prepare: func(context.Context, *rest.Config, string) error { return nil },
	}, nil
}
