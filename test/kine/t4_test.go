//go:build unix

package kine

import (
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/kine/t4"
)

// t4Engine has its database in a directory. There is no S3 for it here.
func t4Engine() engine {
	return engine{
		start: func(t *testing.T) string { return "t4://" + t.TempDir() + "/%d" },
		storage: func(url string, _ time.Duration) controlplane.Storage {
			return t4.Node{URL: url}
		},
		lacks: lacks(map[string]lack{
			"compaction/ends older revisions only":     never(compactsAnything),
			"compaction/leaves a clean list and watch": never("an event after a compaction has no previous value"),
			"keys/of a prefix end at its last one":     never("a watch of a prefix whose last byte is 0xff has events of the keys before it"),
			"leases/end in the order of their time":    never(alwaysPrevious),
			"leases/spare what was written again":      never(alwaysPrevious),
			"leases/that nobody granted are refused":   never(anyLease),
			"progress/comes after its events":          unsure(lateEvents),
			"progress/reaches the newest revision":     unsure(earlyProgress),
			"revisions/never go back for a client":     unsure(olderAnswers),
			"watches/survive compactions":              unsure(dropsUnread),
			"watches/tell the previous value":          never(alwaysPrevious),
		}),
	}
}
