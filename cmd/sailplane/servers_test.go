package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sailplane-dev/sailplane/pkg/insight"
)

// TestWriteServers: a line for each server, and below what is wrong.
func TestWriteServers(t *testing.T) {
	t.Parallel()
	since := time.Now().Add(-12*time.Hour - 30*time.Minute) // shown in whole hours
	cases := map[string]struct {
		reason  string
		servers []insight.Aggregated
		want    string
	}{
		"none": {reason: "an empty table says nothing", want: "This server hands requests to no other one.\n"},
		"all": {
			reason: "what is wrong has room below",
			servers: []insight.Aggregated{
				{Name: "shop/fruit", Address: "in this process", Groups: []string{"fruit.example.com/v1"}, Available: true, Since: since, LatencySeconds: 0.00021},
				{
					Name: "wardle/api", Plane: "blue", Address: "https://10.0.0.7", Problem: "no\x1b[2J answer", Since: since, LatencySeconds: 1.5,
					Groups: []string{"wardle.example.com/v1", "wardle.example.com/v2"}, Conflicts: []string{"wardle.example.com/v1: a answers, and not b"},
				},
			},
			want: "SERVER                    ADDRESS            GROUPS                                        STATE       SINCE   LATENCY    CONFLICTS\n" +
				"shop/fruit                in this process    fruit.example.com/v1                          available   12h     0.2ms      -\n" +
				"wardle/api (plane blue)   https://10.0.0.7   wardle.example.com/v1,wardle.example.com/v2   away        12h     1500.0ms   1\n\n" +
				"wardle/api (plane blue): no\\x1b[2J answer\n" +
				"wardle/api (plane blue): wardle.example.com/v1: a answers, and not b\n",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			if err := writeServers(&out, &insight.Report{Aggregated: c.servers}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, out.String()); diff != "" {
				t.Errorf("%s: -want +got:\n%s", c.reason, diff)
			}
		})
	}
}
