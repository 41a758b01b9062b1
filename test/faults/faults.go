// Package faults has clients work on a storage at random while faults happen to
// it, keeps what they did and were told as a history, and has it checked.
//
// The clients are here; the storage is in a process of its own (server). A
// round is some hundred operations, a few faults, and one reader at the end who
// looks at everything. See docs/durability.md.
package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sailplane-dev/sailplane/test/faults/disk"
	"github.com/sailplane-dev/sailplane/test/faults/history"
	"github.com/sailplane-dev/sailplane/test/faults/verify"
)

const (
	// clients is how many clients there are, and budget what they do together.
	clients = 16
	budget  = 1200
	// prefixes and keys are how many there are; the keys are of each prefix.
	prefixes = 3
	keys     = 4
	// root is above everything.
	root = "/faults/"
)

// The engines, as the rounds of each are named.
const (
	Memory   = "memory"
	SQLite   = "sqlite"
	Etcd     = "etcd"
	External = "etcd-external"
	Postgres = "postgres"
	MariaDB  = "mariadb"
)

// The faults.
const (
	// None: nothing happens.
	None = "none"
	// Kill: the process that writes is killed, and started again on the same data.
	Kill = "kill"
	// Full: for some time no file can grow.
	Full = "full"
	// Power: the process is killed, and what it did not sync is not on the disk.
	Power = "power"
	// Restart: what servers share, an external etcd or a database, is killed, and started again.
	Restart = "restart"
	// Proxy: connections to that are slow, and cut.
	Proxy = "proxy"
)

// Plan says which faults happen to which engines.
func Plan() map[string][]string {
	return map[string][]string{
		Memory:   {None},
		SQLite:   {None, Kill, Full, Power},
		Etcd:     {None, Kill, Full, Power},
		External: {None, Kill, Restart, Proxy},
		Postgres: {None, Kill, Restart, Proxy},
		MariaDB:  {None, Kill, Restart, Proxy},
	}
}

// isShared tells whether several servers may use an engine at once.
func isShared(engine string) bool {
	return engine == External || engine == Postgres || engine == MariaDB
}

// Round is one storage, one kind of fault, and one history.
type Round struct {
	Engine, Fault string
	// Seed decides what clients do and when faults happen. Processes and disks
	// have their own times, so a second round with it is alike and not the same. What can be
	// shared is used by two servers where it is odd, and by one where it is even.
	Seed uint64
	// Programs are what it runs.
	Programs Programs
	// Histories is the directory of the history file.
	Histories string
	// Work is the directory for the data of the storage. Empty: that for
	// temporary files.
	Work string
	// NoSync has the storage leave it to the operating system when to write.
	NoSync bool
}

// Result is what became of a round.
type Result struct {
	// History is the path of the history file.
	History string
	// Violations are what is wrong with the history: nothing, if it is legal.
	Violations []verify.Violation
	// Ops is how many operations there were, Unanswered how many of the writes
	// have no answer, and Faults how many faults happened.
	Ops, Unanswered, Faults int
	// Lost is how many changes of files a loss of power undid.
	Lost int
	// Took is how long it ran, without the check.
	Took time.Duration
}

// servers is how many there are.
func (r Round) servers() int {
	if isShared(r.Engine) && r.Seed%2 == 1 {
		return 2
	}
	return 1
}

// name names the files of the round.
func (r Round) name() string { return fmt.Sprintf("%s-%s-%d", r.Engine, r.Fault, r.Seed) }

// Run runs the round and checks its history. An error means that the storage
// did not start, did not stop or ended by itself, or that the round could not
// be run. The history is written in any case. A round whose trace strace garbled says
// nothing about the storage, and is run again.
func (r Round) Run(ctx context.Context) (*Result, error) {
	for try := 1; ; try++ {
		result, err := r.once(ctx)
		var garbled *disk.TraceError
		if !errors.As(err, &garbled) || try == mostTries {
			return result, err
		}
	}
}

// mostTries is how often a round is run whose trace is garbled.
const mostTries = 3

func (r Round) once(ctx context.Context) (*Result, error) {
	dir, err := os.MkdirTemp(r.Work, "sailplane-faults-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	run := &run{
		round: r, dir: dir, begun: time.Now(), fail: cancel,
		random: rand.New(rand.NewPCG(r.Seed, 0)), progress: newProgress(), marked: make(chan struct{}),
	}
	for range r.servers() {
		run.places = append(run.places, newPlace())
	}
	ran := run.run(ctx)
	h := &history.History{Round: history.Round{Engine: r.Engine, Fault: r.Fault, Seed: r.Seed, Watched: ran == nil}, Ops: run.ops}
	result := &Result{
		History: filepath.Join(r.Histories, r.name()+".jsonl"),
		Ops:     len(h.Ops), Faults: run.faults, Lost: run.lost, Took: time.Since(run.begun),
	}
	for i := range h.Ops {
		if h.Ops[i].Outcome == history.Unknown {
			result.Unanswered++
		}
	}
	if err := history.Write(result.History, h); err != nil {
		return result, errors.Join(ran, err)
	}
	result.Violations = verify.History(h)
	if len(result.Violations) > 0 {
		ran = errors.Join(ran, verify.WritePicture(h, result.History+".html"))
	}
	return result, ran
}

// run is a round that runs.
type run struct {
	round    Round
	dir      string
	begun    time.Time
	fail     context.CancelCauseFunc
	random   *rand.Rand // of the one who makes the faults
	progress *progress
	places   []*place // of the servers. Clients use them in turn, and the watch the last one.
	faults   int
	lost     int      // changes that a disk lost
	outside  *outside // what the servers share, if there is something
	disk     *losses  // what the disk has, if power may be lost
	marked   chan struct{}

	mu   sync.Mutex
	ops  []history.Op
	seen int64 // the last revision that the watch delivered
}

// run starts the storage, has clients work and faults happen, and looks at what is left.
func (r *run) run(ctx context.Context) (err error) {
	if err := r.prepare(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.end(err)) }()
	for n := range r.places {
		if err := r.start(ctx, n); err != nil {
			return err
		}
	}
	var all sync.WaitGroup
	for id := range clients {
		all.Go(func() { newClient(r, id).work(ctx) })
	}
	faulty := r.inject(ctx)
	if faulty != nil {
		r.fail(faulty)
	}
	all.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return r.settle(ctx)
}
