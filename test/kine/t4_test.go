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
		breaks: map[string]string{
			"compaction":     compactsAnything,
			"watch previous": alwaysPrevious,
		},
		random: map[string]string{
			"watch after compact": dropsUnread,
			"progress":            earlyProgress,
			"progress order":      lateEvents,
		},
	}
}
