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

func natsEngine() engine {
	return engine{
		start: func(t *testing.T) string {
			return "nats://sailplane:" + natsPassword + "@" + startNATS(t) + "?bucket=contract_%d"
		},
		password: natsPassword,
		storage: func(url string, timeout time.Duration) controlplane.Storage {
			return settling{nats.JetStream{URL: url, DialTimeout: timeout}}
		},
		breaks: map[string]string{
			"watch previous": alwaysPrevious,
			"watch history":  "the event of a deletion has the value that was deleted",
			"old revisions":  "a list at a revision answers with that one, not with the current one",
			"compaction":     compactsAnything,
		},
		random: map[string]string{
			"compaction protocol": "a watch of the key by which API servers agree on compactions hears nothing",
			"progress order":      lateEvents,
			"cycles":              "a stop right after a start ends the process with a nil pointer",
			"concurrent deletes":  "each of several who delete a key at the same time is told that it did",
			"leases":              "a key whose lease ended may still be read when its deletion was told",
			"watch compacted":     "a watch from before a compaction may begin as if there were none",
			"watch storm":         "who lists and then watches may miss writes",
			"empty lists":         "who lists and then watches may miss writes",
			"progress":            earlyProgress,
		},
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
		!(strings.Contains(state, "[select") && strings.HasPrefix(frames, driver+"compactWatcher("))
}

// stacks are those of all goroutines.
func stacks() string {
	buffer := make([]byte, 16<<20)
	return string(buffer[:runtime.Stack(buffer, true)])
}
