package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// mover is a target whose storage can be had without a server: what is stored can be moved there.
type mover interface {
	target
	// moves says whether it is one. Sailplane in memory loses what it has, and the revisions of an etcd
	// cluster cannot be raised.
	moves() bool
	// vacant makes an empty storage. The directory is that of a server on it.
	vacant(ctx context.Context, dir string) (*vacancy, error)
}

// vacancy is an empty storage.
type vacancy struct {
	url string // as flags name it
	// server is what starts on it.
	server *sailplane
	// analyze has the storage know how much it holds, once it holds something.
	analyze func(context.Context) error
	// stop stops what runs without a server.
	stop func() error
}

func (t *sailplane) moves() bool { return t.storage != storageMemory }

func (t *sailplane) vacant(_ context.Context, dir string) (*vacancy, error) {
	return &vacancy{
		url: storageURL(dir, t.storage), server: t,
		analyze: func(context.Context) error { return nil }, stop: func() error { return nil },
	}, nil
}

// original is what is copied.
type original struct{ file, backup string }

const (
	// filledKeys start with the prefix of a server.
	filledKeys = "/registry/configmaps/default/"
	// filledBatch is how many objects a transaction writes.
	filledBatch = 100
)

// filled returns a SQLite file with the objects that are moved, and a backup of it. It makes them once.
func (l *lab) filled(ctx context.Context) (*original, error) {
	if l.original != nil {
		return l.original, nil
	}
	o := &original{file: filepath.Join(l.dir, "moved.db"), backup: filepath.Join(l.dir, "moved.backup")}
	l.say("fill a SQLite file with %d objects", l.moved)
	if err := fillFile(ctx, o.file, l.moved); err != nil {
		return nil, fmt.Errorf("fill %s: %w", o.file, err)
	}
	if _, err := l.watched(ctx, "backup", "--storage=sqlite:"+o.file, o.backup); err != nil {
		return nil, err
	}
	l.original = o
	return o, nil
}

// fillFile writes n objects into a new file.
func fillFile(ctx context.Context, path string, n int) (err error) {
	backend := sqlite.File{Path: path}.Open()
	defer func() { err = errors.Join(err, backend.Stop(context.WithoutCancel(ctx))) }()
	if err := backend.Start(ctx); err != nil {
		return err
	}
	client, err := backend.Client()
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // its error only says that it was closed
	for begun := 0; begun < n; begun += filledBatch {
		var puts []clientv3.Op
		for i := begun; i < min(n, begun+filledBatch); i++ {
			puts = append(puts, clientv3.OpPut(filledKeys+movedName(i), realistic()))
		}
		if _, err := client.Txn(ctx).Then(puts...).Commit(); err != nil {
			return fmt.Errorf("object %d: %w", begun, err)
		}
	}
	return nil
}

func movedName(i int) string { return fmt.Sprintf("moved-%07d", i) }

// randomBytes of a KiB are random, in letters of which each has six bits: compressed, the KiB has half its size.
const randomBytes = 384

// realistic is a KiB that compresses about as well as objects do, which have much in common.
func realistic() string {
	random := make([]byte, randomBytes)
	_, _ = rand.Read(random) // it never fails
	letters := base64.StdEncoding.EncodeToString(random)
	return letters + value("")[len(letters):]
}

// movedOf is how rows say what is moved.
func (l *lab) movedOf(what string) string { return fmt.Sprintf("%s of %d objects", what, l.moved) }

// movingFlags are the command lines of copies and backups.
func (l *lab) movingFlags() string {
	var b strings.Builder
	if len(l.results.of(phaseCopy)) > 0 {
		for _, args := range copyArgs(&original{"FILE", "FILE"}, "URL") {
			fmt.Fprintf(&b, "sailplane %s\n", strings.Join(args, " "))
		}
	}
	if len(l.results.of(phaseBackup)) > 0 {
		fmt.Fprintf(&b, "sailplane %s\n", strings.Join(backupArgs("DIR", "FILE"), " "))
	}
	return b.String()
}
