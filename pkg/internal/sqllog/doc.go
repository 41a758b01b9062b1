// Package sqllog is a log of revisions in a database that several servers share.
//
// The table sailplane_changes has the columns of kine's (https://github.com/k3s-io/kine): a row is a
// change of a key, and its id the revision. kine takes an id when a row is inserted, and the row
// becomes visible when its transaction is committed, in another order. Here the ids come from a row that a
// transaction locks until it is committed. So revisions have no gaps, and are in the order in
// which they become visible, whichever server writes.
//
// A server keeps no revision of its own: each read asks the database, in one statement, for
// what it wants and for the newest revision.
package sqllog

import (
	"context"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

// Row is one of the table: a change of a key.
type Row struct {
	ID               int64 // 0: there is no row
	Name             string
	Created, Deleted bool
	CreateRevision   int64
	PrevRevision     int64 // the row of the key before this one; 0: there was none
	Value            []byte
	Expires          int64 // as in revision.KeyValue
}

// Position is where a log stands.
type Position struct {
	// Current is the newest revision. Reads below Compacted are refused.
	Current, Compacted int64
	// History is about how many bytes of history there are.
	History int64
}

// Known is the newest row of a key as far as a server knows; 0: it knows none. The database
// leaves out the value of a row that is known.
type Known struct {
	Key string
	ID  int64
}

const (
	// ChangesRows is how many rows of history are read at a time.
	ChangesRows = 500
	// ChangesBytes is how many bytes of values are.
	ChangesBytes = 1 << 20
)

// Batch is what one transaction adds to a log.
type Batch struct {
	Rows []Row
	// History is how many bytes of history the rows make.
	History int64
}

// Database is what a log needs of a database. All methods may be called at the same time, but
// for Write, which has one caller. Each answers from one snapshot.
type Database interface {
	// Write locks the log, and calls decide with where it stands and the newest row of each
	// key that has one. It adds the rows that decide returns, whose IDs follow on the newest
	// revision, and commits. After an error it is unknown whether it did, unless it is that of
	// decide.
	Write(ctx context.Context, keys []Known, decide func(Position, map[string]Row) (Batch, error)) error
	// Skip has revisions go on far above one, as those up to it are lost, and compacts all
	// that are lower: some of them have been used for something else. It does nothing where
	// another server did.
	Skip(ctx context.Context, above int64) error
	// Position returns where the log stands.
	Position(ctx context.Context) (Position, error)
	// Get returns the newest row of a key at a revision; 0: now.
	Get(ctx context.Context, key Known, at int64) (Position, Row, error)
	// List gives the newest row of each key of a span at a revision (0: now) that is not
	// deleted, in the order of their bytes, and no more than limit unless that is 0.
	List(ctx context.Context, q revision.Query, each func(*Row) error) (Position, error)
	// Count counts them.
	Count(ctx context.Context, s revision.Span, at int64) (Position, int64, error)
	// Changes gives the rows after a revision, in order, each with the one before it, whose
	// ID is 0 if there is none: as many as ChangesRows, and no more after those whose values
	// have ChangesBytes.
	Changes(ctx context.Context, s revision.Span, after int64, each func(row, previous *Row)) (Position, error)
	// Expiring returns the keys that expire.
	Expiring(ctx context.Context) ([]*revision.KeyValue, error)
	// Compact has reads below a revision refused from now on. An API server asks for it; it
	// returns false, and does nothing, where one asked for that revision or a later one before.
	Compact(ctx context.Context, at int64, asked bool) (bool, error)
	// Sweep drops the history that revisions made, from where the last sweep ended, up to one,
	// and returns where it ended: after about so many rows. Of several servers that sweep at
	// once, one does it.
	Sweep(ctx context.Context, to, rows int64) (swept int64, err error)
	// Shrink writes the tables anew, without what is free in them. Other calls wait for it.
	Shrink(ctx context.Context) error
	// Size returns what the tables and their indexes take on disk, in bytes.
	Size(ctx context.Context) (int64, error)
	// Wait returns a revision that was committed, by any server: the next one that it is told of.
	// It returns 0 where it cannot know what it missed.
	Wait(ctx context.Context) (int64, error)
	// Close ends all connections.
	Close() error
}
