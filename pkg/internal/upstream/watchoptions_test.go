package upstream

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestWatchOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		option clientv3.OpOption
		want   WatchOptions
	}{
		"none":            {clientv3.WithRev(1), WatchOptions{}},
		"previous values": {clientv3.WithPrevKV(), WatchOptions{PrevKV: true}},
		"progress":        {clientv3.WithProgressNotify(), WatchOptions{ProgressNotify: true}},
		"created":         {clientv3.WithCreatedNotify(), WatchOptions{CreatedNotify: true}},
		"no puts":         {clientv3.WithFilterPut(), WatchOptions{FilterPut: true}},
		"no deletions":    {clientv3.WithFilterDelete(), WatchOptions{FilterDelete: true}},
	} {
		if diff := cmp.Diff(tc.want, WatchOptionsOf(clientv3.OpGet("key", tc.option))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
