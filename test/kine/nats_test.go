//go:build unix

package kine

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/kine/nats"
)

// natsPassword needs no percent-encoding, which kine does not decode.
const natsPassword = "s3cr3t-p4ss.w~rd"

// startTimeout is how long a database may take to start on a busy machine.
const startTimeout = 2 * time.Minute

// Why a test of the contract does not hold on NATS.
const (
	earlyEvents         = "an event may come before a read shows it"
	changedBytes        = "bytes of a key that are not UTF-8 are changed"
	oldRefusals         = "a refused write answers with the revision of its key, not with the current one"
	missedWrites        = "a client that lists and then watches may miss writes"
	unnoticedCompaction = "compacted revisions may be read and watched for a while, as if they were not compacted"
)

func natsEngine() engine {
	return engine{
		start: func(t *testing.T) string {
			return "nats://sailplane:" + natsPassword + "@" + startNATS(t) + "?sync=interval&bucket=contract_%d"
		},
		password: natsPassword,
		storage: func(url string, timeout time.Duration) controlplane.Storage {
			return settling{nats.JetStream{URL: url, DialTimeout: timeout}}
		},
		lacks: lacks(map[string]lack{
			"compaction/ends older revisions only":                 never(compactsAnything),
			"compaction/is agreed on by servers":                   unsure("a watch of the key by which API servers agree on compactions gets no events"),
			"compaction/leaves a clean list and watch":             never("a compaction itself uses up revisions"),
			"keys/have bytewise order":                             never(changedBytes),
			"keys/hold every byte":                                 never(changedBytes),
			"keys/of a prefix end at its last one":                 never(changedBytes),
			"leases/end in the order of their time":                never(alwaysPrevious),
			"leases/end the keys they hold, not before their time": unsure("a key whose lease ended may still be readable after the event of its deletion"),
			"leases/spare what was written again":                  never(alwaysPrevious),
			"leases/that nobody granted are refused":               never(anyLease),
			"lifecycle/starts and stops leave nothing":             unsure("a stop right after a start ends the process with a nil pointer"),
			"progress/comes after its events":                      unsure(lateEvents),
			"progress/reaches the newest revision":                 unsure(earlyProgress),
			"reads/in pages end at a compaction":                   unsure(unnoticedCompaction),
			"reads/of an empty list can be followed":               unsure(missedWrites),
			"reads/of old revisions are exact":                     never("a list at a revision answers with that revision, not with the current one"),
			"revisions/never go back for a client":                 unsure(oldRefusals),
			"revisions/are global and one for each write":          never(oldRefusals),
			"traits/Shared is seen by other servers":               unsure("a list does not show at once what another server wrote"),
			"watches/replay what came after, in order":             unsure("an event may lack its previous value"),
			"watches/begin at their revision":                      never("the event of a deletion has the value that was deleted"),
			"watches/miss nothing after a list":                    unsure(missedWrites),
			"watches/of what was compacted are refused":            unsure(unnoticedCompaction),
			"watches/tell nothing that a read does not show":       unsure(earlyEvents),
			"watches/tell the previous value":                      never(alwaysPrevious),
			"writes/of many deletes only one happens":              unsure("several clients that delete a key at the same time all succeed"),
		}),
	}
}

// startNATS runs a NATS server with JetStream until the test ends and returns its
// address.
func startNATS(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, Username: "sailplane", Password: natsPassword,
		JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(startTimeout) {
		t.Fatal("the NATS server does not start")
	}
	return s.Addr().String()
}

// settling is a storage that a test may stop at any time. kine's driver begins to
// watch for compactions after its start, and ends the process with a nil pointer
// where it is stopped before it does.
type settling struct{ nats.JetStream }

// Open implements controlplane.Storage.
func (s settling) Open() controlplane.Backend { return settled{s.JetStream.Open()} }

type settled struct{ controlplane.Backend }

// Start implements controlplane.Backend. It returns when every watch for
// compactions waits for one, which only the stacks tell.
func (s settled) Start(ctx context.Context) error {
	if err := s.Backend.Start(ctx); err != nil {
		return err
	}
	for slices.ContainsFunc(strings.Split(stacks(), "\n\n"), starting) {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// starting says that a stack is of a watch for compactions that does not wait for
// one yet. Before it runs at all it has a name of the compiler's.
func starting(stack string) bool {
	const driver = "github.com/k3s-io/kine/pkg/drivers/nats.(*Backend)."
	state, frames, _ := strings.Cut(stack, "\n")
	return strings.Contains(frames, driver+"Start.gowrap") || strings.Contains(frames, driver+"compactWatcher(") &&
		(!strings.Contains(state, "[select") || !strings.HasPrefix(frames, driver+"compactWatcher("))
}

// stacks are those of all goroutines.
func stacks() string {
	buffer := make([]byte, 16<<20)
	return string(buffer[:runtime.Stack(buffer, true)])
}
