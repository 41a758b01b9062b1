package upstream

import (
	"reflect"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// WatchOptions are what somebody who watches asked for.
type WatchOptions struct {
	PrevKV, ProgressNotify, CreatedNotify, FilterPut, FilterDelete bool
}

// WatchOptionsOf reads the options of a watch out of an operation that was made
// with them. A clientv3.Watcher has to know them, and clientv3 has methods for some
// fields of an Op and not for these
// (https://github.com/etcd-io/etcd/blob/v3.6.16/client/v3/op.go). A field that is
// not there counts as false; TestWatchOptions notices.
func WatchOptionsOf(op clientv3.Op) WatchOptions {
	fields := reflect.ValueOf(op)
	has := func(name string) bool {
		f := fields.FieldByName(name)
		return f.Kind() == reflect.Bool && f.Bool()
	}
	return WatchOptions{
		PrevKV: has("prevKV"), ProgressNotify: has("progressNotify"), CreatedNotify: has("createdNotify"),
		FilterPut: has("filterPut"), FilterDelete: has("filterDelete"),
	}
}
